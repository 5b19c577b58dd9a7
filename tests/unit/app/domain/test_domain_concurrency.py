"""The number of requests in flight adapts to simulated receivers."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from app.domain.concurrency import START, USEFUL_MIN, ConcurrencyLimit, is_overload
from app.domain.delivery import Rejected, Unreachable

BUSY = 503


@dataclass
class Receiver:
    """Processes `capacity` requests at a time; others queue, or are rejected if it is `strict`."""

    latency_s: float
    capacity: int = 1_000_000
    strict: bool = False
    _free_s: list[float] = field(default_factory=list)

    def answer(self, now_s: float) -> tuple[float, bool]:
        """When a request of `now_s` is answered, and whether it is accepted."""
        while self._free_s and self._free_s[0] <= now_s:
            heapq.heappop(self._free_s)
        if len(self._free_s) < self.capacity:
            end_s = now_s + self.latency_s
        elif self.strict:
            return now_s + 0.001, False
        else:
            # The first that is free takes the request that has waited longest.
            end_s = sorted(self._free_s)[-self.capacity] + self.latency_s
        heapq.heappush(self._free_s, end_s)
        return end_s, True


@dataclass
class Run:
    """What happened: limits after each response, and the time at the end."""

    limits: list[int]
    rejected: int
    seconds: float


def send(
    limit: ConcurrencyLimit,
    receiver: Receiver,
    events: int,
    pause_s: float = 0.0,
    start_s: float = 0.0,
) -> Run:
    """Send events as fast as the limit allows, with at least `pause_s` from one to the next."""
    in_flight: list[tuple[float, float, bool]] = []
    now_s = next_s = start_s
    run, sent = Run([], 0, 0.0), 0
    while sent < events or in_flight:
        if sent < events and len(in_flight) < limit.limit and next_s <= now_s:
            end_s, is_accepted = receiver.answer(now_s)
            heapq.heappush(in_flight, (end_s, now_s, is_accepted))
            sent, next_s = sent + 1, now_s + pause_s
            continue
        may_send = sent < events and len(in_flight) < limit.limit
        if may_send and (not in_flight or next_s < in_flight[0][0]):
            now_s = next_s
            continue
        now_s, started_s, is_accepted = in_flight[0]
        if is_accepted:
            limit.record_response(started_s, now_s, len(in_flight))
        else:
            limit.record_overload(started_s, now_s, is_answered=True)
            run.rejected += 1
        heapq.heappop(in_flight)
        run.limits.append(limit.limit)
    run.seconds = now_s - start_s
    return run


@pytest.mark.parametrize("latency_s", [0.05, 0.2, 1.0])
def test_a_slow_receiver_without_errors_gets_as_many_as_allowed(latency_s: float) -> None:
    limit = ConcurrencyLimit(400)
    assert limit.limit == START
    run = send(limit, Receiver(latency_s), 6_000)
    assert run.limits[-1] == 400
    assert run.limits == sorted(run.limits)
    # Four, eight, sixteen and so on until 400, and then 400 per round trip.
    assert run.seconds <= (7 + 6_000 / 400 + 1) * latency_s


@pytest.mark.parametrize(("latency_s", "request_events"), [(0.0005, 1), (0.005, 100)])
def test_a_fast_receiver_gets_as_many_as_are_of_use(latency_s: float, request_events: int) -> None:
    limit = ConcurrencyLimit(400, request_events=request_events)
    run = send(limit, Receiver(latency_s), 1_000)
    assert run.limits[-1] == max(run.limits) == USEFUL_MIN


def test_a_receiver_whose_requests_queue_gets_about_as_many_as_it_processes() -> None:
    limit = ConcurrencyLimit(400)
    send(limit, receiver := Receiver(0.2, capacity=10), 1_000)
    run = send(limit, receiver, 1_000, start_s=1_000.0)
    assert 10 <= min(run.limits) <= max(run.limits) <= 20
    # As fast as it can be.
    assert run.seconds == pytest.approx(1_000 / 10 * 0.2, rel=0.05)


def test_a_receiver_that_rejects_what_exceeds_its_capacity_gets_little_more() -> None:
    limit = ConcurrencyLimit(400)
    receiver = Receiver(0.2, capacity=10, strict=True)
    send(limit, receiver, 500)
    run = send(limit, receiver, 2_000, start_s=1_000.0)
    assert max(run.limits) <= 12
    assert sum(run.limits) / len(run.limits) > 6
    assert run.rejected < 0.1 * 2_000


def test_a_receiver_that_becomes_slower_for_good_gets_many_requests_again() -> None:
    limit = ConcurrencyLimit(200)
    assert send(limit, Receiver(0.1), 3_000).limits[-1] == 200
    run = send(limit, Receiver(0.4), 6_000, start_s=1_000.0)
    assert min(run.limits) == START
    assert run.limits[-1] == 200


def grown(limit_max: int = 400, is_crowded: Callable[[], bool] = lambda: False) -> ConcurrencyLimit:
    limit = ConcurrencyLimit(limit_max, is_crowded)
    send(limit, Receiver(0.2), 3_000)
    return limit


def test_a_rejection_halves_it_at_once_and_those_in_flight_do_not_again() -> None:
    limit = grown()
    for started_s in (99.0, 98.0, 99.9):
        limit.record_overload(started_s, 100.0, is_answered=True)
        assert limit.limit == 200
    limit.record_overload(100.0, 100.2, is_answered=True)
    assert limit.limit == 100
    # It grows by a tenth per round trip from here, and no longer doubles.
    run = send(limit, Receiver(0.2), 300, start_s=101.0)
    assert run.limits[-1] <= 140


def test_after_an_outage_it_doubles_until_half_of_what_it_was() -> None:
    limit = grown()
    for number in range(20):
        limit.record_overload(100.0 + number, 100.5 + number, is_answered=False)
    assert limit.limit == 1
    run = send(limit, Receiver(0.2), 1_000, start_s=200.0)
    assert max(run.limits) >= 200
    assert run.seconds < 20 * 0.2


def test_unused_requests_do_not_raise_it() -> None:
    # Twenty a second with 200 ms each are four in flight.
    run = send(ConcurrencyLimit(400), Receiver(0.2), 200, pause_s=0.05)
    assert max(run.limits) < 3 * START


def test_the_upper_bound_holds_and_may_change() -> None:
    assert set(send(ConcurrencyLimit(1), Receiver(0.2), 50).limits) == {1}
    limit = grown(100)
    assert limit.limit == 100
    limit.change_max(10)
    assert limit.limit == 10
    limit.change_max(50)
    assert send(limit, Receiver(0.2), 2_000, start_s=100.0).limits[-1] == 50


def test_in_a_crowded_process_it_is_as_low_as_at_first() -> None:
    crowded = False
    limit = grown(400, lambda: crowded)
    assert limit.limit == 400
    crowded = True
    assert limit.limit == START


def test_too_many_requests_unavailability_and_silence_ask_for_less() -> None:
    assert [is_overload(Rejected(status, None, "", "")) for status in (429, 503, 500, 404)] == [
        True,
        True,
        False,
        False,
    ]
    assert is_overload(Unreachable("timeout"))
