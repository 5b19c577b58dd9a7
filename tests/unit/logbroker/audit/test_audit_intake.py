from collections.abc import Iterable

from logbroker.audit.comparison import Comparison, Patience, Scope
from logbroker.audit.intake import AuditEntry, Intake
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
PATIENCE = Patience(T0 + 10 * MINUTE_MS, MINUTE_MS)


def published(window_ms: int = T0) -> bytes:
    sequences = SequenceSet(range(3))
    event = PublishedReport("clicks", "web/1", window_ms, window_ms + MINUTE_MS, sequences)
    (record,) = encode_published(event)
    return record.value


def received(time_ms: int = T0, window_ms: int = T0) -> bytes:
    receipt = ReceivedCount("clicks", "web/1", window_ms, 4, SequenceSet(range(3)))
    (record,) = encode_received(ReceivedReport("readers", "one", time_ms, [receipt]))
    return record.value


def taken(values: Iterable[bytes | None], time_ms: int = T0) -> tuple[Intake, Comparison]:
    comparison = Comparison(Scope(0, PATIENCE.now_ms))
    intake = Intake(comparison, PATIENCE)
    for offset, value in enumerate(values):
        intake.take(AuditEntry(1, offset, time_ms, value))
    return intake, comparison


def test_an_event_that_was_written_twice_counts_once() -> None:
    intake, comparison = taken([published(), published(), *[received()] * 3, received(T0 + 1)])
    (row,) = comparison.rows(PATIENCE)
    # Of each of the two that differ, one message was a repeat, and the second one repeats three.
    assert (row.published, row.received, row.duplicated) == (3, 3, 1 + 4)
    assert intake.events == {"published": 2, "received": 2, "repeated": 2}
    assert not list(intake.warnings())


def test_what_is_no_event_is_counted_and_its_first_place_told() -> None:
    strange = [None, b"", b"{}", b"[" * 100_000, b'{"kind":"published"}', b"\xff", b'"kind"']
    intake, comparison = taken([published(), *strange])
    assert intake.events == {"published": 1, "malformed": len(strange)}
    (warning,) = intake.warnings()
    assert warning.startswith(f"{len(strange)} records of the topic are no monitoring events")
    assert warning.endswith("(the first: partition 1, offset 1)")
    assert len(list(comparison.rows(PATIENCE))) == 1


def test_clocks_that_run_ahead_are_told_of() -> None:
    ahead_ms = PATIENCE.now_ms + MINUTE_MS + 1
    intake, _ = taken([published()], time_ms=ahead_ms)
    (warning,) = intake.warnings()
    assert "ahead of this machine's time" in warning
    intake, comparison = taken([published(ahead_ms), received(T0, ahead_ms)])
    (warning,) = intake.warnings()
    assert warning.startswith("2 monitoring events are about windows that are still to come")
    # Such a window is none that begins before now.
    assert not list(comparison.rows(PATIENCE))
    assert intake.events == {"published": 1, "received": 1, "future": 2}
