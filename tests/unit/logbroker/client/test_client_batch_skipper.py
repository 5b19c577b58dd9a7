"""When a client's error leads to a skipped batch."""

from collections.abc import Mapping

from confluent_kafka import KafkaError

from logbroker.client.batch_skipper import REJECTIONS_MAX, BatchSkipper, position_after
from logbroker.client.errors import BrokersUnavailable
from logbroker.client.raw import TopicPartition
from logbroker.client.skipped_batches import Inspection, SkippedBatch

PROPERTIES = {"bootstrap.servers": "127.0.0.1:1"}
ERROR = KafkaError(KafkaError._BAD_COMPRESSION)


class Log:
    """A log that is intact, except for the offsets from 10 to 14."""

    def __init__(self) -> None:
        self.rejected: list[str | None] = []

    def inspect(
        self,
        properties: Mapping[str, str],
        tp: TopicPartition,
        offset: int,
        *,
        until: int | None,
        rejected: str | None,
    ) -> Inspection:
        assert (properties, until) == (PROPERTIES, None)
        self.rejected.append(rejected)
        if offset == 99:
            raise BrokersUnavailable("down")
        is_damaged = rejected is not None or 10 <= offset < 15
        end = 15 if 10 <= offset < 15 else offset + 1
        batches = (SkippedBatch(*tp, offset, end, "damaged"),) if is_damaged else ()
        return Inspection(batches, has_records=True)


def test_an_unreadable_batch_is_reported_and_the_position_is_behind_it() -> None:
    skipped: list[SkippedBatch] = []
    skipper = BatchSkipper(PROPERTIES, skipped.append, Log().inspect)
    found = skipper.skip_unreadable("orders", 3, 12, ERROR)
    assert position_after(found, 12) == 15
    assert skipped == [SkippedBatch("orders", 3, 12, 15, "damaged")]
    assert skipped[0].offsets == 3


def test_an_intact_batch_is_skipped_only_after_repeated_errors_at_its_offset() -> None:
    log, skipped = Log(), list[SkippedBatch]()
    skipper = BatchSkipper(PROPERTIES, skipped.append, log.inspect)
    for offset in (20, *[30] * REJECTIONS_MAX):
        skipper.skip_unreadable("orders", 0, offset, ERROR)
    assert log.rejected[:-1] == [None] * REJECTIONS_MAX
    assert log.rejected[-1] == ERROR.str()
    assert [each.start for each in skipped] == [30]


def test_silence_alone_never_skips_an_intact_batch() -> None:
    log = Log()
    skipper = BatchSkipper(PROPERTIES, lambda _: None, log.inspect)
    for _ in range(REJECTIONS_MAX + 1):
        found = skipper.skip_unreadable("orders", 0, 20)
        assert position_after(found, 20) == 20
    assert set(log.rejected) == {None}


def test_a_log_that_does_not_answer_leaves_the_position() -> None:
    skipper = BatchSkipper(PROPERTIES, lambda _: None, Log().inspect)
    found = skipper.skip_unreadable("orders", 0, 99, ERROR)
    assert found is None
    assert position_after(found, 99) == 99
