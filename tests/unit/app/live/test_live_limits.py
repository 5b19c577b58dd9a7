"""The rate limit and the concurrency of one webhook's live delivery."""

import asyncio

from app.domain.endpoint_options import EndpointOptions, Ordering
from app.live.limits import LiveLimits
from tests.support.processes.waiting import until_async


def test_requests_in_flight_are_limited_by_options_and_setting() -> None:
    limits = LiveLimits(8, lambda: None)
    assert limits.in_flight_max == 8
    for wanted, expected in ((2, 2), (100, 8), (None, 8)):
        limits.options = EndpointOptions(max_in_flight=wanted)
        assert limits.in_flight_max == expected


def test_in_strict_order_one_request_is_in_flight() -> None:
    limits = LiveLimits(8, lambda: None)
    limits.options = EndpointOptions(max_in_flight=4, ordering=Ordering.STRICT)
    assert limits.in_flight_max == 1


def test_without_a_rate_every_delivery_may_start() -> None:
    limits = LiveLimits(8, lambda: None)
    limits.options = EndpointOptions(max_in_flight=2)
    assert all(limits.may_start(0.0, 9) for _ in range(100))


def test_a_delivery_above_the_rate_is_started_when_it_may() -> None:
    async def scenario() -> None:
        loop, started = asyncio.get_running_loop(), list[float]()
        limits = LiveLimits(8, lambda: started.append(loop.time()))
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
