from collections.abc import Iterable

from logbroker.audit.domain.comparison import Comparison, ReportDeadline, Scope
from logbroker.audit.domain.report_reader import AuditEntry, ReportReader
from logbroker.client.audit_format.report import (
    PublishedReport,
    ReceivedCount,
    ReceivedReport,
    encode_published,
    encode_received,
)
from logbroker.client.audit_format.sequence_set import SequenceSet

MINUTE_MS = 60_000
T0 = 1_763_712_000_000
DEADLINE = ReportDeadline(T0 + 10 * MINUTE_MS, MINUTE_MS)


def published(window_ms: int = T0) -> bytes:
    sequences = SequenceSet(range(3))
    event = PublishedReport("clicks", "web/1", window_ms, window_ms + MINUTE_MS, sequences)
    (record,) = encode_published(event)
    return record.value


def received(time_ms: int = T0, window_ms: int = T0) -> bytes:
    receipt = ReceivedCount("clicks", "web/1", window_ms, 4, SequenceSet(range(3)))
    (record,) = encode_received(ReceivedReport("readers", "one", time_ms, [receipt]))
    return record.value


def taken(values: Iterable[bytes | None], time_ms: int = T0) -> tuple[ReportReader, Comparison]:
    comparison = Comparison(Scope(0, DEADLINE.now_ms))
    reader = ReportReader(comparison, DEADLINE)
    for offset, value in enumerate(values):
        reader.add(AuditEntry(1, offset, time_ms, value))
    return reader, comparison


def test_an_event_that_was_written_twice_counts_once() -> None:
    reader, comparison = taken([published(), published(), *[received()] * 3, received(T0 + 1)])
    (row,) = comparison.rows(DEADLINE)
    # Of each of the two that differ, one message was a repeat, and the second one repeats three.
    assert (row.published, row.received, row.duplicated) == (3, 3, 1 + 4)
    assert reader.counts == {"published": 2, "received": 2, "repeated": 2}
    assert not list(reader.warnings())


def test_malformed_records_are_counted_and_the_first_is_named() -> None:
    strange = [None, b"", b"{}", b"[" * 100_000, b'{"kind":"published"}', b"\xff", b'"kind"']
    reader, comparison = taken([published(), *strange])
    assert reader.counts == {"published": 1, "malformed": len(strange)}
    (warning,) = reader.warnings()
    assert warning.startswith(f"{len(strange)} records of the topic are not audit reports")
    assert warning.endswith("(first: partition 1, offset 1)")
    assert len(list(comparison.rows(DEADLINE))) == 1


def test_clocks_ahead_cause_a_warning() -> None:
    ahead_ms = DEADLINE.now_ms + MINUTE_MS + 1
    reader, _ = taken([published()], time_ms=ahead_ms)
    (warning,) = reader.warnings()
    assert "ahead of this machine's clock" in warning
    reader, comparison = taken([published(ahead_ms), received(T0, ahead_ms)])
    (warning,) = reader.warnings()
    assert warning.startswith("2 audit reports are about windows in the future")
    # A window in the future is not compared.
    assert not list(comparison.rows(DEADLINE))
    assert reader.counts == {"published": 1, "received": 1, "future": 2}
