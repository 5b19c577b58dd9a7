"""What the sender records of each outcome, without a broker."""

import time

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, Message

from logbroker.client.properties import PLACEHOLDER_SERVERS
from logbroker.mirror.clients import producer_settings
from logbroker.mirror.domain.provenance import Provenance
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.sender import CopyFailed, PartitionCopy, Sender

RECORD_BYTES_MAX = 1_000


def read(offset: int, size: int) -> Message:
    """A record of the source, as a consumer returns it."""
    return Message(
        topic="clicks",
        partition=0,
        offset=offset,
        key=None,
        value=size * b".",
        timestamp=(TIMESTAMP_CREATE_TIME, 1_763_712_000_000),
    )


def test_a_record_that_the_client_rejects_is_the_first_one_that_is_not_sent() -> None:
    settings = producer_settings(PLACEHOLDER_SERVERS, {}) | {"message.max.bytes": RECORD_BYTES_MAX}
    counts = MirrorCounts()
    sender = Sender(settings, Provenance("east", "west"), counts, lambda _topic, _mark: None)
    copy = PartitionCopy("clicks", 0, 5, counts)
    copy.acknowledged_s = time.time()
    assert sender.send(copy, read(5, 10))
    assert not sender.send(copy, read(6, 2 * RECORD_BYTES_MAX))
    with pytest.raises(CopyFailed, match=r"offset 6 on: .*MSG_SIZE_TOO_LARGE"):
        sender.poll(0)
    assert (copy.progress.position, copy.progress.next_offset) == (5, 6)
    sender.abandon()
    assert copy.progress.position == 5
    assert counts.of_topic("clicks").records == 0
