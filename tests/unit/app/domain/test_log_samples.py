"""Intervals between samples of the log."""

from app.domain.log_samples import (
    LogSample,
    SampleInterval,
    SampleSpan,
    level_intervals,
    written_intervals,
)

MINUTE_MS = 60_000
START_MS = 30_000_000 * MINUTE_MS


def at(minute: int) -> int:
    return START_MS + minute * MINUTE_MS


def samples_of(*values: tuple[int, int]) -> list[LogSample]:
    """Return samples from pairs of a minute and a value."""
    return [LogSample(at(minute), value) for minute, value in values]


def test_messages_are_counted_between_the_ends_of_spans() -> None:
    samples = samples_of((0, 100), (1, 130), (4, 190))
    assert written_intervals(samples, SampleSpan.MINUTE, at(60)) == (
        SampleInterval(at(1), at(2), 30),
        # No sample was taken for two minutes: all of them share what was written.
        SampleInterval(at(2), at(5), 60),
    )


def test_a_span_that_goes_on_ends_now() -> None:
    samples = samples_of((0, 100), (10, 160))
    present_ms = at(13)
    (interval,) = written_intervals(samples, SampleSpan.TEN_MINUTES, present_ms)
    assert interval == SampleInterval(at(10), present_ms, 60)


def test_a_topic_that_was_created_again_counts_nothing_at_first() -> None:
    samples = samples_of((0, 100), (1, 3), (2, 8))
    found = written_intervals(samples, SampleSpan.MINUTE, at(60))
    assert [each.value for each in found] == [0, 5]


def test_one_sample_has_no_interval() -> None:
    assert written_intervals(samples_of((0, 100)), SampleSpan.MINUTE, at(60)) == ()
    assert level_intervals([], SampleSpan.MINUTE) == ()


def test_a_level_lasts_until_the_next_one_except_in_gaps() -> None:
    levels = [(at(0), 7), (at(1), 8), (at(3), 9), (at(10), 0)]
    assert level_intervals(levels, SampleSpan.MINUTE) == (
        SampleInterval(at(0), at(1), 7),
        # A single missing sample is no gap.
        SampleInterval(at(1), at(3), 8),
        SampleInterval(at(3), at(4), 9),
        SampleInterval(at(10), at(11), 0),
    )


def test_minutes_are_listed_for_the_last_two_hours() -> None:
    assert SampleSpan.since(at(0), at(120)) is SampleSpan.MINUTE
    assert SampleSpan.since(at(0), at(121)) is SampleSpan.TEN_MINUTES
