import pytest

from app.domain.delivery import LiveOutcome
from app.domain.tallies import (
    AHEAD_MS,
    CELLS_MAX,
    CountedTally,
    DeliveryTally,
    SettledDelivery,
    Span,
    TallyCounter,
)

HOUR_MS = 3_600_000
FIVE_MS = 300_000
HISTORY_MS = 120 * HOUR_MS
NOW_MS = 400_000 * HOUR_MS

DELIVERED, FAILED, LEFT, DISABLED = LiveOutcome


def never() -> None:
    raise AssertionError("there was room for all")


def counted(*events: SettledDelivery) -> list[CountedTally]:
    tallies = TallyCounter(HISTORY_MS, never)
    for event in events:
        tallies.count_delivery(event)
    return tallies.drain()()


def of_span(span: Span, *events: SettledDelivery) -> list[DeliveryTally]:
    return [each.tally for each in counted(*events) if each.span is span]


def event(
    outcome: LiveOutcome = DELIVERED,
    event_ms: int = NOW_MS,
    settled_ms: int = NOW_MS,
    took_ms: float | None = 20.0,
    webhook_id: str = "wh_1",
) -> SettledDelivery:
    return SettledDelivery(webhook_id, outcome, event_ms, settled_ms, took_ms)


def test_each_outcome_is_counted_separately() -> None:
    events = [event(outcome, took_ms=None) for outcome in (DELIVERED, *[FAILED] * 2, *[LEFT] * 3)]
    events += [event(DISABLED, took_ms=None)] * 4
    (tally,) = of_span(Span.SETTLED, *events)
    assert tally == DeliveryTally(NOW_MS, 1, 2, 3, 4)


def test_events_are_counted_by_outcome_time_and_by_event_time() -> None:
    before = NOW_MS - 1
    events = [event(event_ms=before, settled_ms=before), event(event_ms=before), event()]
    settled = of_span(Span.SETTLED, *events)
    assert {each.start_ms: each.delivered for each in settled} == {NOW_MS - FIVE_MS: 1, NOW_MS: 2}
    hours = of_span(Span.EVENT, *events)
    assert {each.start_ms: each.delivered for each in hours} == {NOW_MS - HOUR_MS: 2, NOW_MS: 1}


def test_each_webhook_has_its_own_counts() -> None:
    found = counted(event(), event(), event(webhook_id="wh_2"))
    settled = {each.webhook_id: each.tally.delivered for each in found if each.span is Span.SETTLED}
    assert settled == {"wh_1": 2, "wh_2": 1}


def test_latencies_are_counted_in_the_bucket_of_their_upper_bound() -> None:
    times_ms = (0, 50, 50.1, 250, 4_999, 5_000, 5_001, 15_000, None)
    (tally,) = of_span(Span.SETTLED, *(event(took_ms=each) for each in times_ms))
    assert tally.took == (2, 1, 1, 0, 0, 0, 2, 2)
    (hour,) = of_span(Span.EVENT, *(event(took_ms=each) for each in times_ms))
    assert hour.took == tally.took


def test_the_latest_times_of_missed_events_are_kept() -> None:
    (hour,) = of_span(
        Span.EVENT,
        event(event_ms=NOW_MS + 9, settled_ms=NOW_MS + 99),
        event(FAILED, event_ms=NOW_MS + 5, settled_ms=NOW_MS + 20),
        event(LEFT, event_ms=NOW_MS + 3, settled_ms=NOW_MS + 30),
    )
    assert (hour.missed_until_ms, hour.missed_at_ms) == (NOW_MS + 6, NOW_MS + 30)
    (quiet,) = of_span(Span.EVENT, event())
    assert (quiet.missed_until_ms, quiet.missed_at_ms) == (0, 0)


@pytest.mark.parametrize(
    ("age_ms", "hours"), [(HISTORY_MS, 1), (HISTORY_MS + 1, 0), (-AHEAD_MS, 1), (-AHEAD_MS - 1, 0)]
)
def test_events_outside_the_history_are_not_counted_by_event_time(age_ms: int, hours: int) -> None:
    stranger = event(event_ms=NOW_MS - age_ms)
    assert len(of_span(Span.EVENT, stranger)) == hours
    assert len(of_span(Span.SETTLED, stranger)) == 1


def test_drained_counts_are_reset() -> None:
    tallies = TallyCounter(HISTORY_MS, never)
    tallies.count_delivery(event())
    taken = tallies.drain()
    assert not tallies
    tallies.count_delivery(event(FAILED))
    assert tallies
    assert {each.tally.delivered for each in taken()} == {1}
    assert {(each.tally.delivered, each.tally.failed) for each in tallies.drain()()} == {(0, 1)}


@pytest.mark.long
def test_counts_beyond_the_limit_are_reported_as_lost() -> None:
    lost: list[None] = []
    tallies = TallyCounter(HISTORY_MS, lambda: lost.append(None))
    for number in range(CELLS_MAX):
        tallies.count_delivery(event(webhook_id=f"wh_{number}"))
    assert not lost
    tallies.count_delivery(event(webhook_id="wh_more"))
    tallies.count_delivery(event(webhook_id="wh_0"))
    # One for each of both spans.
    assert len(lost) == 2
    found = tallies.drain()()
    assert len(found) == 2 * CELLS_MAX
    assert sum(each.tally.delivered for each in found) == 2 * CELLS_MAX + 2
    tallies.count_delivery(event(webhook_id="wh_more"))
    assert len(lost) == 2
