"""Tables that need not survive the machine."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _no_waiting_for_the_disk() -> Iterator[None]:
    """Hundreds of commits each wait for the disk a dozen times, and nothing here is about that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield
