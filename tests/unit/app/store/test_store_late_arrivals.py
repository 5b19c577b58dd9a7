import time
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import func, select

from app.domain.lateness import LateSpan
from app.domain.model import Window
from app.store import Store
from app.store.engine import open_engine
from app.store.late_arrivals import EXPIRED_PER_CALL
from app.store.tables import late_arrivals
from tests.support.processes.waiting import until

FOREVER_MS = 10**15
HOUR_MS = 3_600_000
HERE = "a"
NOW_MS = time.time_ns() // 1_000_000
CLOCKS_MS = 50
"""The tolerated difference of the clocks of test and database."""


def span(partition: int, from_ms: int, to_ms: int, end: int) -> LateSpan:
    return LateSpan(partition, Window(from_ms, to_ms), end)


def row_count(database_url: str) -> int:
    engine = open_engine(database_url)
    with engine.connect() as connection:
        count = connection.scalar(select(func.count()).select_from(late_arrivals))
    engine.dispose()
    assert count is not None
    return count


def test_a_window_has_the_highest_end_of_overlapping_spans(store: Store) -> None:
    spans = [span(1, 10, 20, 500), span(1, 15, 30, 700), span(1, 40, 50, 900), span(2, 0, 99, 999)]
    store.record_late_arrivals(spans, FOREVER_MS, origin=HERE)
    assert store.late_end_offset(1, Window(0, 100), origin=HERE) == 900
    assert store.late_end_offset(1, Window(12, 18), origin=HERE) == 700
    assert store.late_end_offset(1, Window(11, 15), origin=HERE) == 500
    assert store.late_end_offset(2, Window(12, 18), origin=HERE) == 999


def test_an_adjacent_span_does_not_overlap(store: Store) -> None:
    store.record_late_arrivals([span(1, 10, 20, 500)], FOREVER_MS, origin=HERE)
    assert store.late_end_offset(1, Window(5, 10), origin=HERE) is None
    assert store.late_end_offset(1, Window(5, 11), origin=HERE) == 500
    assert store.late_end_offset(1, Window(19, 25), origin=HERE) == 500
    assert store.late_end_offset(1, Window(20, 25), origin=HERE) is None


def test_a_partition_without_late_arrivals_has_no_end_offset(store: Store) -> None:
    store.record_late_arrivals([span(1, 10, 20, 500)], FOREVER_MS, origin=HERE)
    assert store.late_end_offset(0, Window(10, 20), origin=HERE) is None


def test_the_time_of_the_last_late_arrival_is_stored(store: Store) -> None:
    before_ms = time.time_ns() // 1_000_000 - CLOCKS_MS
    store.record_late_arrivals([span(1, 10, 20, 500)], FOREVER_MS, origin=HERE)
    first_ms = store.late_recorded_ms(1, Window(19, 25), origin=HERE)
    assert first_ms is not None
    assert before_ms <= first_ms <= time.time_ns() // 1_000_000 + CLOCKS_MS
    until(lambda: time.time_ns() // 1_000_000 > first_ms + CLOCKS_MS, "the clock has gone on")
    store.record_late_arrivals([span(1, 15, 16, 400)], FOREVER_MS, origin="")
    assert store.late_recorded_ms(1, Window(17, 25), origin=HERE) == first_ms
    last_ms = store.late_recorded_ms(1, Window(0, 99), origin=HERE)
    assert last_ms is not None
    assert last_ms > first_ms
    for partition, window, origin in (
        (1, Window(20, 25), HERE),
        (2, Window(10, 20), HERE),
        (1, Window(10, 15), "b"),
    ):
        assert store.late_recorded_ms(partition, window, origin=origin) is None


def test_one_call_stores_late_arrivals_of_thousands_of_partitions(store: Store) -> None:
    spans = [span(number, 10, 20, number + 1) for number in range(2_000)]
    store.record_late_arrivals(spans, FOREVER_MS, origin=HERE)
    assert [
        store.late_end_offset(number, Window(10, 11), origin=HERE)
        for number in (0, 199, 200, 1_999)
    ] == [
        1,
        200,
        201,
        2_000,
    ]


def test_expired_spans_are_deleted(store: Store, database_url: str) -> None:
    old = span(1, NOW_MS - 3 * HOUR_MS, NOW_MS - 2 * HOUR_MS, 10)
    kept = span(1, NOW_MS - 3 * HOUR_MS, NOW_MS, 20)
    store.record_late_arrivals([old, kept], FOREVER_MS, origin=HERE)
    assert row_count(database_url) == 2
    store.record_late_arrivals([span(2, NOW_MS, NOW_MS + 1, 5)], HOUR_MS, origin=HERE)
    assert row_count(database_url) == 2
    assert store.late_end_offset(1, old.window, origin=HERE) == 20


def test_one_call_deletes_a_limited_number_of_spans(store: Store, database_url: str) -> None:
    old = [span(1, 10, 20, number) for number in range(EXPIRED_PER_CALL + 100)]
    store.record_late_arrivals(old, FOREVER_MS, origin=HERE)
    store.record_late_arrivals([span(1, NOW_MS, NOW_MS + 1, 5)], HOUR_MS, origin=HERE)
    assert row_count(database_url) == 100 + 1
    store.record_late_arrivals([span(1, NOW_MS, NOW_MS + 1, 6)], HOUR_MS, origin=HERE)
    assert row_count(database_url) == 2


def test_concurrent_calls_store_spans_while_old_ones_are_deleted(
    store: Store, database_url: str
) -> None:
    store.record_late_arrivals(
        [span(1, 10, 20, number) for number in range(400)], FOREVER_MS, origin=HERE
    )

    def record(number: int) -> None:
        for turn in range(10):
            spans = [
                span(partition, NOW_MS, NOW_MS + 1, number * 10 + turn) for partition in (1, 2)
            ]
            store.record_late_arrivals(spans, HOUR_MS, origin=HERE)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(record, range(8)))
    assert row_count(database_url) == 8 * 10 * 2
