import pytest

from app.domain.forecast import duration_s
from app.domain.options import ReplayOptions


@pytest.mark.parametrize(
    ("options", "in_flight", "seconds"),
    [
        # Ten answers of 20 ms each under way at a time: 500 events a second.
        (ReplayOptions(), 10, 20.0),
        (ReplayOptions(max_in_flight=1), 10, 200.0),
        # What was asked for is less than that.
        (ReplayOptions(max_events_per_second=100), 10, 100.0),
        # More events in each POST, up to the pace asked for.
        (ReplayOptions(batch_size=4), 10, 5.0),
        (ReplayOptions(batch_size=100), 10, 4.0),
        # No worker sends more than 5,000 requests a second.
        (ReplayOptions(max_in_flight=1_024, max_events_per_second=50_000), 10, 2.0),
    ],
)
def test_the_slowest_part_decides_the_duration_of_ten_thousand_events(
    options: ReplayOptions, in_flight: int, seconds: float
) -> None:
    assert duration_s(10_000, 0.5, options, in_flight) == pytest.approx(seconds)


def test_a_range_with_few_events_takes_as_long_as_reading_it() -> None:
    assert duration_s(10, 60.0, ReplayOptions(), 16) == 60.0
