"""Receivers of webhooks, for whichever test has something delivered."""

from collections.abc import Iterator

import pytest

from tests.support.http.receiver_thread import ReceiverThread


@pytest.fixture
def receiver() -> Iterator[ReceiverThread]:
    with ReceiverThread() as receiver:
        yield receiver


@pytest.fixture
def other() -> Iterator[ReceiverThread]:
    """A second one."""
    with ReceiverThread() as receiver:
        yield receiver
