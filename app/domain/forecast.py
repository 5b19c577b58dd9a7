"""How long a replay may take, reckoned before it begins."""

from typing import Final

from app.domain.options import ReplayOptions

ANSWER_S: Final = 0.02
"""How long a receiver takes to answer, as long as nobody has asked it: one not far away that
queues its work, as receivers are told to."""

POSTS_PER_SECOND_MAX: Final = 5_000
"""What one worker process sends at its best."""


def duration_s(events: int, reading_s: float, options: ReplayOptions, in_flight: int) -> float:
    """How long it takes to read a range for `reading_s` and to deliver `events` of it meanwhile.

    Reading and delivering go on side by side, so the slower of the two tells. Delivery is as fast
    as was asked for, unless the requests in flight allow less: each is taken to be answered in
    `ANSWER_S`, and no worker sends more than `POSTS_PER_SECOND_MAX`. `in_flight` is how many there
    are when `options` do not say. Waiting for a worker, retries and pauses come on top.
    """
    posts_per_second = min((options.max_in_flight or in_flight) / ANSWER_S, POSTS_PER_SECOND_MAX)
    pace = min(posts_per_second * options.batch_size, options.max_events_per_second)
    return max(events / pace, reading_s)
