from hypothesis import given
from hypothesis import strategies as st

from app.domain.lateness import (
    AHEAD_MS_MAX,
    Arrival,
    LateSpan,
    disorder_ms,
    late_spans,
    unseen_spans,
)
from app.domain.model import Window


def test_events_on_time_yield_no_span() -> None:
    assert late_spans([], 100) == []
    assert late_spans([Arrival(100, 0, 7), Arrival(101, 1, 7)], 100) == []


def test_late_events_yield_one_span_per_partition() -> None:
    arrivals = [
        Arrival(50, 3, 12),
        Arrival(99, 1, 7),
        Arrival(20, 3, 10),
        Arrival(30, 3, 11),
        Arrival(100, 3, 13),
    ]
    assert late_spans(arrivals, 100) == [
        LateSpan(1, Window(99, 100), 8),
        LateSpan(3, Window(20, 51), 13),
    ]


@given(
    # For each record: how far the clock went on before it, and how its time differs from it.
    st.lists(
        st.tuples(st.integers(0, 2_000), st.integers(-5_000, AHEAD_MS_MAX)), min_size=1, max_size=30
    ),
    st.integers(0, 2_000),
    st.integers(-5_000, 60_000),
    st.integers(1, 5_000),
)
def test_every_event_of_a_window_lies_before_the_end_or_below_a_span(
    steps: list[tuple[int, int]], lateness_ms: int, from_ms: int, length_ms: int
) -> None:
    window = Window(from_ms, from_ms + length_ms)
    clock_ms, log, spans = 0, [], []
    for offset, (pause_ms, difference_ms) in enumerate(steps):
        clock_ms += pause_ms
        arrival = Arrival(clock_ms + difference_ms, 0, offset)
        log.append(arrival)
        spans += late_spans([arrival], clock_ms - lateness_ms)

    limit_ms = window.to_ms + disorder_ms(lateness_ms)
    end = next((each.offset for each in log if each.time_ms >= limit_ms), len(log))
    for span in spans:
        if span.window.from_ms < window.to_ms and span.window.to_ms > window.from_ms:
            end = max(end, span.end)
    assert all(each.offset < end for each in log if window.from_ms <= each.time_ms < window.to_ms)


def test_unseen_records_may_be_late_at_any_earlier_time() -> None:
    assert unseen_spans({3: 9, 1: 4}, on_time_from_ms=100) == [
        LateSpan(1, Window(0, 100), 4),
        LateSpan(3, Window(0, 100), 9),
    ]
