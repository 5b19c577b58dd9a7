"""What a replay would bring, asked of librdkafka's own broker."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest

from app.domain.model import OffsetRange, Window
from app.log.errors import EstimatesBusy, HistoryLost, LogUnavailable
from app.log.estimate import SAMPLES, Estimate, EstimateQuery, Estimator, sample_ranges
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from logbroker.client.partitioner import partition_for_key

KEY = b"wh_1"
PARTITION = partition_for_key(KEY, 4)
OTHER = next(
    key for n in range(2, 99) if partition_for_key(key := f"wh_{n}".encode(), 4) == PARTITION
)
TIME_MS = 1_795_000_000_000
ALWAYS = Window(0, 2 * TIME_MS)
UNHURRIED_S = 60.0


def publish(bootstrap_servers: str, events: Sequence[NewEvent]) -> None:
    async def scenario() -> None:
        async with EventPublisher(bootstrap_servers, origin="here", server="test") as publisher:
            await publisher.publish("deliveries", events)

    asyncio.run(scenario())


def event(number: int, key: bytes = KEY, event_type: str = "user.followed") -> NewEvent:
    return NewEvent(key.decode(), f"evt_{number}", event_type, TIME_MS + number, b"x" * 10)


def question(
    start: int,
    end: int,
    window: Window = ALWAYS,
    is_wanted: Callable[[str], bool] = lambda _: True,
) -> EstimateQuery:
    return EstimateQuery(OffsetRange(PARTITION, start, end), KEY, window, is_wanted)


def estimator(bootstrap_servers: str, **bounds: float) -> Estimator:
    bounds = {"time_s_max": UNHURRIED_S} | bounds
    return Estimator(bootstrap_servers, topic="deliveries", **bounds)  # type: ignore[arg-type]


def test_a_short_range_is_counted_to_the_event(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n, KEY if n % 3 else OTHER) for n in range(3_000)])
    window = Window(TIME_MS + 300, TIME_MS + 600)
    found = estimator(foreign_broker).estimate(question(0, 3_000, window))
    assert found[:3] == (200, 2_000, True)
    assert found.reading_s > 0


def test_filtered_event_types_are_not_counted(foreign_broker: str) -> None:
    publish(
        foreign_broker,
        [event(n, event_type="dm.sent" if n % 4 else "user.followed") for n in range(400)],
    )
    found = estimator(foreign_broker).estimate(
        question(0, 400, is_wanted=lambda event_type: event_type == "dm.sent")
    )
    assert found[:3] == (300, 3_000, True)


def test_a_duplicate_event_is_counted_once(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n % 50) for n in range(100)])
    assert estimator(foreign_broker).estimate(question(0, 100))[:3] == (50, 500, True)


def test_a_long_range_is_sampled_from_end_to_end(foreign_broker: str) -> None:
    # All matching records are in the second half: a sample of the first records has none.
    publish(foreign_broker, [event(n, OTHER if n < 20_000 else KEY) for n in range(40_000)])
    found = estimator(foreign_broker, records_max=4_000).estimate(question(0, 40_000))
    assert not found.is_exact
    assert found.events == pytest.approx(20_000, rel=0.1)
    assert found.bytes == 10 * found.events


def test_an_empty_range_needs_no_log(refused_address: str) -> None:
    assert estimator(refused_address).estimate(question(7, 7)) == Estimate(
        0, 0, is_exact=True, reading_s=0.0
    )


def test_a_log_that_says_nothing_gives_no_estimate(refused_address: str) -> None:
    with pytest.raises(LogUnavailable):
        estimator(refused_address, time_s_max=0.3).estimate(question(0, 10))


def test_a_range_that_is_gone_gives_no_estimate(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n) for n in range(10)])
    with pytest.raises(HistoryLost):
        estimator(foreign_broker).estimate(question(5_000, 5_010))


def test_only_so_many_are_made_at_a_time(foreign_broker: str) -> None:
    publish(foreign_broker, [event(n) for n in range(10)])
    asked, may_go_on = threading.Event(), threading.Event()

    def hold(_: str) -> bool:
        asked.set()
        return may_go_on.wait(60)

    busy = estimator(foreign_broker, at_a_time=1)
    first = threading.Thread(target=busy.estimate, args=(question(0, 10, is_wanted=hold),))
    first.start()
    try:
        assert asked.wait(60)
        with pytest.raises(EstimatesBusy):
            busy.estimate(question(0, 10))
    finally:
        may_go_on.set()
        first.join()
    assert busy.estimate(question(0, 10)).events == 10


@pytest.mark.parametrize(("length", "records_max"), [(10, 10), (1, 10)])
def test_a_range_that_fits_is_one_stretch(length: int, records_max: int) -> None:
    assert sample_ranges(OffsetRange(0, 5, 5 + length), records_max) == [(5, 5 + length)]


@pytest.mark.parametrize("length", [101, 119, 1_000, 123_456_789])
def test_stretches_reach_from_end_to_end_and_never_overlap(length: int) -> None:
    places = sample_ranges(OffsetRange(0, 1_000, 1_000 + length), 100)
    assert len(places) == SAMPLES
    assert (places[0][0], places[-1][1]) == (1_000, 1_000 + length)
    assert all(before[1] <= after[0] for before, after in pairwise(places))
    assert sum(end - start for start, end in places) == 100
