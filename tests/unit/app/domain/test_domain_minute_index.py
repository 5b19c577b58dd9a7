"""The minute index: where records of a window end, whatever the order of their times."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.lateness import AHEAD_MS_MAX, Arrival, disorder_ms, late_spans
from app.domain.minute_index import (
    IndexedRange,
    IndexedWindow,
    MinuteIndexUpdate,
    TimedOffset,
    next_update,
)
from app.domain.model import Window
from app.domain.windows import MINUTE_MS

SOME = IndexedRange(3, 8, TimedOffset(5, 900))


def records_of(times_ms: list[int], start: int = 0) -> list[TimedOffset]:
    return [TimedOffset(offset, time_ms) for offset, time_ms in enumerate(times_ms, start)]


def first_since(log: list[TimedOffset], time_ms: int) -> TimedOffset | None:
    return next((each for each in log if each.time_ms >= time_ms), None)


def test_an_entry_is_the_end_of_the_last_record_of_a_minute() -> None:
    update = MinuteIndexUpdate(IndexedRange(7, 7))
    update.add(records_of([MINUTE_MS, 5, MINUTE_MS + 1, -1, 2 * MINUTE_MS - 1], start=7), end=14)
    assert update.ends == {0: 9, MINUTE_MS: 12}
    assert update.indexed == IndexedRange(7, 14, TimedOffset(11, 2 * MINUTE_MS - 1))
    update.add([TimedOffset(20, 2 * MINUTE_MS - 1)], end=21)
    assert update.ends == {0: 9, MINUTE_MS: 21}
    assert update.indexed == IndexedRange(7, 21, TimedOffset(11, 2 * MINUTE_MS - 1))


def test_what_is_known_ends_at_records_that_cannot_be_read() -> None:
    update = MinuteIndexUpdate(SOME)
    update.add([TimedOffset(8, 950)], end=9)
    update.restart(12)
    assert (update.indexed, update.ends, update.is_restart) == (IndexedRange(12, 12), {}, True)


def test_an_update_continues_the_range_of_the_same_log() -> None:
    update = next_update(SOME, SOME.newest, 8, start=8, low=0)
    assert (update.indexed, update.is_restart) == (SOME, False)
    # The log has deleted records, read ones and new ones.
    update = next_update(SOME, SOME.newest, 8, start=8, low=5)
    assert (update.indexed, update.is_restart) == (IndexedRange(5, 8, SOME.newest), False)


def test_an_update_starts_again_if_records_may_be_missing() -> None:
    for stored, found, position, start in (
        (None, None, None, 4),
        (IndexedRange(3, 8), None, 8, 8),
        # A recreated log has another record of this time, or none.
        (SOME, TimedOffset(6, 900), 8, 8),
        (SOME, TimedOffset(-1, -1), 8, 8),
        # The log ends below the position.
        (SOME, SOME.newest, 8, 0),
        # A process without the minute index has read on, or the index of events was deleted.
        (SOME, SOME.newest, 9, 9),
        (SOME, SOME.newest, None, 8),
    ):
        update = next_update(stored, found, position, start=start, low=0)
        assert (update.indexed, update.is_restart) == (IndexedRange(start, start), True)


@given(
    # For each record: how far the clock went on before it, and how its time differs from it.
    st.lists(
        st.tuples(st.integers(0, 2 * MINUTE_MS), st.integers(-40 * MINUTE_MS, AHEAD_MS_MAX)),
        min_size=1,
        max_size=40,
    ),
    # Where the index starts, and the ends of its reads.
    st.lists(st.integers(0, 40), min_size=1, max_size=6).map(sorted),
    st.integers(0, 20 * MINUTE_MS),
    st.integers(0, 60 * MINUTE_MS),
    st.integers(1, 20 * MINUTE_MS),
)
def test_no_event_of_a_window_lies_at_its_end_or_above(
    steps: list[tuple[int, int]],
    reads: list[int],
    lateness_ms: int,
    from_ms: int,
    length_ms: int,
) -> None:
    window = Window(from_ms, from_ms + length_ms)
    clock_ms, log, late_end = 40 * MINUTE_MS, [], 0
    for offset, (pause_ms, difference_ms) in enumerate(steps):
        clock_ms += pause_ms
        log.append(TimedOffset(offset, clock_ms + difference_ms))
        arrival = Arrival(log[-1].time_ms, 0, offset)
        for span in late_spans([arrival], clock_ms - lateness_ms):
            if span.window.from_ms < window.to_ms and span.window.to_ms > window.from_ms:
                late_end = span.end
    first = min(reads[0], len(log))
    entries: dict[int, int] = {}
    indexed = IndexedRange(first, first)
    for read_end in reads[1:]:
        start, end = indexed.end, max(indexed.end, min(read_end, len(log)))
        found = first_since(log, indexed.newest.time_ms) if indexed.newest else None
        update = next_update(indexed, found, start, start=start, low=0)
        update.add(log[start:end], end)
        entries = {} if update.is_restart else entries
        entries |= update.ends
        indexed = update.indexed

    newest = indexed.newest
    limit_ms = window.to_ms + disorder_ms(lateness_ms)
    if newest is None or newest.time_ms < limit_ms or first_since(log, newest.time_ms) != newest:
        return
    minutes = range(from_ms - from_ms % MINUTE_MS, window.to_ms, MINUTE_MS)
    known_end = max((entries.get(each, 0) for each in minutes), default=0)
    begin = first_since(log, from_ms)
    start = len(log) if begin is None else begin.offset
    end = IndexedWindow(indexed.start, newest, known_end).end_from(start, late_end)
    of_window = [each.offset for each in log if window.from_ms <= each.time_ms < window.to_ms]
    assert all(start <= offset < end for offset in of_window)
    if start >= indexed.start and late_end <= newest.offset + 1:
        # Exact to the minute.
        in_minutes = (each for each in log[indexed.start :] if each.time_ms >= minutes[0])
        last = [each.offset for each in in_minutes if each.time_ms < minutes[-1] + MINUTE_MS]
        assert end == max([start, *(offset + 1 for offset in last if offset < indexed.end)])
