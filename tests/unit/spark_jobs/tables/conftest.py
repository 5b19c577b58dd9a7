"""Speeds up the tests of tables."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _skip_flushes() -> Iterator[None]:
    """Skip flushes: these tests make hundreds of commits, and none depends on durability."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _descriptor: None)
        yield
