"""The estimated duration of a replay that has not started."""

from typing import Final

from app.domain.options import ReplayOptions

ANSWER_S: Final = 0.02
"""Assumed response time: that of a nearby receiver which queues its work, as recommended."""

POSTS_PER_SECOND_MAX: Final = 5_000
"""The highest rate of one worker process."""


def duration_s(events: int, reading_s: float, options: ReplayOptions, in_flight: int) -> float:
    """The seconds to read a range, which takes `reading_s`, and to deliver `events` of it.

    Reading and delivery run concurrently, so the slower one decides. Delivery has the requested
    rate, limited by the requests in flight with `ANSWER_S` each, and by `POSTS_PER_SECOND_MAX`.
    `in_flight` applies if `options` have none. Waiting for a worker, retries and pauses are extra.
    """
    posts_per_second = min((options.max_in_flight or in_flight) / ANSWER_S, POSTS_PER_SECOND_MAX)
    rate = min(posts_per_second * options.batch_size, options.max_events_per_second)
    return max(events / rate, reading_s)
