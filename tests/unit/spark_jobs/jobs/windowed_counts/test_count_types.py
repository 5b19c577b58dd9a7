"""Counting of events by type and window in tasks."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.errors import UndecodableRecord
from spark_jobs.jobs.parsing import TIME
from spark_jobs.jobs.windowed_counts.counting import COUNTED, count_types, read_type

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE_US = 60_000_000
NOW_US = (NOON - EPOCH) // timedelta(microseconds=1)

Event = tuple[float, bytes | None, bytes | None]
"""Seconds after noon, the header `event-type`, the value."""


def records(events: Sequence[Event]) -> pa.RecordBatch:
    times = [NOON + timedelta(seconds=seconds) for seconds, _, _ in events]
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["events"] * len(events),
            "partition": pa.array([2] * len(events), pa.int32()),
            "offset": list(range(len(events))),
            "timestamp": pa.array(times, TIME),
            "value": pa.array([value for _, _, value in events], pa.binary()),
            "headerType": pa.array([header for _, header, _ in events], pa.binary()),
        }
    )


def counted(*events: Event, window_us: int = MINUTE_US) -> list[dict[str, Any]]:
    rows = []
    for batch in count_types(records(events), window_us, NOW_US):
        assert batch.schema == COUNTED
        rows += batch.to_pylist()
    return rows


def sums(*events: Event, window_us: int = MINUTE_US) -> dict[tuple[str, float], int]:
    """Events by type and the latest of their times."""
    return {
        (row["eventType"], (row["timestamp"] - NOON).total_seconds()): row["events"]
        for row in counted(*events, window_us=window_us)
    }


def test_events_of_a_type_and_window_are_one_row_with_the_latest_time() -> None:
    assert sums(
        (-60, b"paid", b"{}"),
        (-1, b"paid", b"{}"),
        (-30, b"paid", b"{}"),
        (-1, b"sent", b"{}"),
        (0, b"paid", b"{}"),
    ) == {("paid", -1): 3, ("sent", -1): 1, ("paid", 0): 1}


def test_windows_before_1970_begin_before_their_events() -> None:
    age = (EPOCH - NOON).total_seconds()
    assert sums((age - 1, b"paid", b""), (age, b"paid", b"")) == {
        ("paid", age - 1): 1,
        ("paid", age): 1,
    }


def test_without_a_header_the_member_type_is_the_type() -> None:
    assert sums((0, None, b'{"type": "paid"}'), (0, b"", b'{"type": "paid"}')) == {("paid", 0): 2}


def test_a_header_precedes_the_member_type() -> None:
    assert sums((0, b"sent", b'{"type": "paid"}')) == {("sent", 0): 1}


def test_an_uncountable_record_keeps_its_position_and_value() -> None:
    good, bad = counted((0, b"paid", b"{}"), (1, None, b"garbage"))
    assert good["reason"] is None
    assert bad.pop("reason").startswith("no header event-type, and value is not JSON")
    assert bad == {
        "timestamp": NOON + timedelta(seconds=1),
        "eventType": None,
        "events": None,
        "topic": "events",
        "partition": 2,
        "offset": 1,
        "value": b"garbage",
    }


def test_an_event_in_the_future_is_not_counted() -> None:
    (good, bad) = counted((300, b"paid", b"{}"), (300.001, b"paid", b"{}"))
    assert (good["events"], bad["events"]) == (1, None)
    assert "ahead" in bad["reason"]
    assert bad["value"] == b"{}"


def test_an_event_in_the_year_200000_is_not_counted() -> None:
    batch = records([(0, b"paid", b"{}")])
    far = pa.array([200_000 * 365 * 86_400 * 1_000_000], pa.int64()).cast(TIME)
    batch = batch.set_column(3, "timestamp", far)
    (row,) = list(count_types(batch, MINUTE_US, NOW_US))
    assert "ahead" in row.column("reason").to_pylist()[0]


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (None, None),
        (None, b""),
        (None, b"[]"),
        (None, b'{"type": 7}'),
        (None, b'{"type": ""}'),
        (None, b'{"type": "\\ud800"}'),
        (None, b"\xff"),
        (None, b"[" * 100_000),
        (b"x" * 257, b"{}"),
    ],
)
def test_an_event_without_a_type_is_undecodable(header: bytes | None, value: bytes | None) -> None:
    with pytest.raises(UndecodableRecord, match="type"):
        read_type(value, header)


def test_no_records_return_no_rows() -> None:
    assert counted() == []
