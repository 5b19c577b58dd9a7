"""The rate limit and the concurrency of one webhook's live delivery."""

import asyncio

from app.delivery.attempt import Attempt
from app.domain.delivery import Delivered, Rejected
from app.domain.endpoint_options import EndpointOptions, Ordering
from app.live.limits import LiveLimits
from tests.support.processes.waiting import until_async


def test_requests_in_flight_are_limited_by_options_and_setting() -> None:
    limits = LiveLimits(8, lambda _: None, lambda: None)
    assert limits.in_flight_max == 8
    for wanted, expected in ((2, 2), (100, 8), (None, 8)):
        limits.options = EndpointOptions(max_in_flight=wanted)
        assert limits.in_flight_max == expected


def test_in_strict_order_one_request_is_in_flight() -> None:
    limits = LiveLimits(8, lambda _: None, lambda: None)
    limits.options = EndpointOptions(max_in_flight=4, ordering=Ordering.STRICT)
    assert limits.in_flight_max == 1


def test_responses_raise_the_number_of_requests_and_rejections_halve_it() -> None:
    limited = list[int]()
    limits = LiveLimits(32, limited.append, lambda: None)
    start = limited[-1]
    for number in range(100):
        sent_s = 10.0 * (number // 10)
        limits.record_attempt(Attempt(Delivered(200), sent_s, sent_s + 0.2), limited[-1])
    assert start < limited[-1] == 32
    limits.record_attempt(Attempt(Rejected(429, 5.0, "", ""), 1_000.0, 1_000.1), 32)
    assert limited[-1] == 16
    limits.options = EndpointOptions(max_in_flight=2)
    assert limited[-1] == 2


def test_without_a_rate_every_delivery_may_start() -> None:
    limits = LiveLimits(8, lambda _: None, lambda: None)
    limits.options = EndpointOptions(max_in_flight=2)
    assert all(limits.may_start(0.0, 9) for _ in range(100))


def test_a_delivery_above_the_rate_is_started_when_it_may() -> None:
    async def scenario() -> None:
        loop, started = asyncio.get_running_loop(), list[float]()
        limits = LiveLimits(8, lambda _: None, lambda: started.append(loop.time()))
        limits.options = EndpointOptions(max_events_per_second=20)
        first_s = loop.time()
        assert limits.may_start(first_s, 2)
        # Other options keep the place in the schedule.
        limits.options = EndpointOptions({"x-a": "b"}, max_events_per_second=20)
        refused = [limits.may_start(first_s, 1) for _ in range(5)]
        # The limiter admits what a short pause before has missed, and nothing further.
        assert refused[-1] is False
        await until_async(lambda: started, "the waiting delivery is started")
        assert limits.may_start(loop.time() + 1, 0)
        assert len(started) == 1
        limits.options = None
        assert limits.may_start(first_s, 1)

    asyncio.run(scenario())
