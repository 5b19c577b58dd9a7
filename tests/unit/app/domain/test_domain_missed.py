import itertools
from dataclasses import replace

import pytest

from app.domain.missed import MissedHour, PastReplay, missed_hours
from app.domain.model import Window
from app.domain.tallies import DeliveryTally

HOUR_MS = 3_600_000
START_MS = 100 * HOUR_MS
LAST_MS = START_MS + HOUR_MS // 2
"""The time of the last missed event."""

SETTLED_MS = START_MS + HOUR_MS

HOUR = DeliveryTally(
    START_MS,
    delivered=5,
    failed=1,
    skipped=2,
    missed_until_ms=LAST_MS + 1,
    missed_at_ms=SETTLED_MS,
)

_numbers = itertools.count()


def replay(
    from_ms: int = START_MS,
    to_ms: int = START_MS + HOUR_MS,
    *,
    failed: int = 0,
    retry_of: PastReplay | None = None,
    created_ms: int = SETTLED_MS + 1,
) -> PastReplay:
    name = f"rpl_{next(_numbers)}"
    window = Window(from_ms, to_ms)
    return PastReplay(name, window, failed, retry_of.id if retry_of else None, created_ms)


def is_replayed(*replays: PastReplay) -> bool:
    (hour,) = missed_hours([("here", HOUR)], replays)
    return hour.is_replayed


def test_an_hour_without_a_replay_is_not_replayed() -> None:
    assert missed_hours([("here", HOUR)], []) == (MissedHour(START_MS, 1, 2, 0, False),)
    assert (HOUR.missed, missed_hours([("here", HOUR)], [])[0].missed) == (3, 3)
    assert missed_hours([("here", HOUR)], [])[0].end_ms == START_MS + HOUR_MS


def test_hours_without_missed_events_are_omitted() -> None:
    assert missed_hours([("here", DeliveryTally(START_MS, delivered=7))], [replay()]) == ()


def test_a_replay_of_the_hour_covers_it() -> None:
    assert is_replayed(replay())


def test_a_replay_from_the_first_missed_event_covers_the_hour() -> None:
    first_ms = START_MS + HOUR_MS // 4
    hour = replace(HOUR, missed_from_ms=first_ms)
    assert missed_hours([("here", hour)], [replay(from_ms=first_ms)])[0].is_replayed
    assert not missed_hours([("here", hour)], [replay(from_ms=first_ms + 1)])[0].is_replayed
    # Where the first one is unknown, the whole hour counts.
    assert not is_replayed(replay(from_ms=first_ms))


def test_a_replay_that_ends_after_the_last_missed_event_covers_the_hour() -> None:
    assert is_replayed(replay(to_ms=LAST_MS + 1))
    assert not is_replayed(replay(to_ms=LAST_MS))


def test_a_replay_that_starts_within_the_hour_does_not_cover_it() -> None:
    assert is_replayed(replay(START_MS - HOUR_MS))
    assert not is_replayed(replay(START_MS + 1))


def test_a_replay_created_before_the_last_outcome_does_not_cover_the_hour() -> None:
    assert not is_replayed(replay(created_ms=SETTLED_MS))


def test_adjacent_replays_cover_the_hour_together() -> None:
    third = HOUR_MS // 6
    parts = [replay(START_MS + third * n, START_MS + third * (n + 1)) for n in range(4)]
    for order in itertools.permutations(parts):
        assert is_replayed(*order)
    for missing in parts:
        assert not is_replayed(*(each for each in parts if each is not missing))
    assert is_replayed(replay(to_ms=START_MS + 5), *parts[1:], replay(START_MS + 4, LAST_MS + 1))


def test_a_replay_with_failures_does_not_cover_the_hour() -> None:
    assert not is_replayed(replay(failed=1))


@pytest.mark.parametrize("links", [1, 3])
def test_a_replay_and_the_retries_of_its_failures_cover_the_hour(links: int) -> None:
    chain = [replay(failed=9)]
    for left in reversed(range(links)):
        chain.append(replay(failed=left, retry_of=chain[-1]))
    assert is_replayed(*chain)
    assert not is_replayed(*chain[:-1])
    # What it retried is not known any more.
    assert not is_replayed(*chain[1:])


def test_a_recovery_covers_the_events_of_its_data_centre_alone() -> None:
    hours = [("a", HOUR), ("b", replace(HOUR, failed=3))]
    recoveries = [replace(replay(), origin=name) for name in "ab"]
    assert missed_hours(hours, recoveries) == (MissedHour(START_MS, 4, 4, 0, True),)
    for each in recoveries:
        assert missed_hours(hours, [each]) == (MissedHour(START_MS, 4, 4, 0, False),)
    assert missed_hours(hours, [replay()])[0].is_replayed
