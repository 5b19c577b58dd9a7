"""Slots of a worker: what takes one, and which replay gives way."""

import pytest

from app.domain.turns import (
    LONG_TURN_S,
    REQUESTS_PER_S_MIN,
    RETRYING_TURN_S,
    SHORT_TURN_S,
    TURN_PER_START,
    ReplayActivity,
    RunningReplay,
    Slots,
    Turn,
)

SLOTS = Slots(running_max=2, waiting_max=1)


def running(
    account_id: str,
    turn_s: float = 1_000,
    *,
    seconds_min: float = 0,
    is_waiting: bool = False,
    is_retrying: bool = False,
) -> RunningReplay:
    return RunningReplay(account_id, Turn(turn_s, seconds_min), is_waiting, is_retrying)


WAITING = running("a", is_waiting=True)
BUSY = running("a")


@pytest.mark.parametrize(
    ("replays", "are_taken"),
    [
        ([], False),
        ([BUSY], False),
        ([BUSY, BUSY], True),
        ([BUSY, WAITING], False),
        ([BUSY, WAITING, WAITING], True),
        ([WAITING, WAITING], False),
        ([WAITING, WAITING, WAITING], True),
    ],
)
def test_waiting_replays_take_no_slot_up_to_a_limit(
    replays: list[RunningReplay], are_taken: bool
) -> None:
    assert SLOTS.are_taken(replays) is are_taken


def test_the_account_with_the_most_replays_gives_way_with_the_longest_turn() -> None:
    replays = [running("a", 90), running("b", 9), running("b", 10), running("b", 5)]
    assert SLOTS.choose_to_give_way(replays, "c") == 2


@pytest.mark.parametrize(
    ("accounts", "turn_s"),
    [
        # The account "b" waits; it runs none here, clearly fewer, one fewer, as many.
        ("a", SHORT_TURN_S),
        ("aaab", SHORT_TURN_S),
        ("aab", LONG_TURN_S),
        ("ab", LONG_TURN_S),
    ],
)
def test_the_length_of_a_turn_depends_on_the_shares(accounts: str, turn_s: float) -> None:
    others = [running(account, 0) for account in accounts[1:]]
    assert SLOTS.choose_to_give_way([running("a", turn_s - 0.1), *others], "b") is None
    assert SLOTS.choose_to_give_way([running("a", turn_s), *others], "b") == 0


def test_a_replay_of_the_same_account_waits_for_a_long_turn() -> None:
    assert SLOTS.choose_to_give_way([running("a", LONG_TURN_S - 1)], "a") is None
    assert SLOTS.choose_to_give_way([running("a", LONG_TURN_S)], "a") == 0


def test_a_replay_in_retry_keeps_its_slot_for_longer() -> None:
    replays = [running("a", RETRYING_TURN_S - 1, is_retrying=True)]
    assert SLOTS.choose_to_give_way(replays, "b") is None
    assert SLOTS.choose_to_give_way([running("a", RETRYING_TURN_S, is_retrying=True)], "b") == 0


def test_a_turn_lasts_longer_than_its_beginning() -> None:
    assert SLOTS.choose_to_give_way([running("a", 19, seconds_min=20)], "b") is None
    assert SLOTS.choose_to_give_way([running("a", 20, seconds_min=20)], "b") == 0


def test_a_waiting_replay_makes_room_only_where_too_many_wait() -> None:
    assert SLOTS.choose_to_give_way([running("b", 0), WAITING], "c") is None
    assert SLOTS.choose_to_give_way([running("b", 0), WAITING, WAITING], "c") == 1


def test_a_replay_with_few_requests_is_waiting_after_a_window() -> None:
    activity = ReplayActivity(10.0)
    activity.begin_turn(10.0)
    assert not activity.is_waiting(10.5)
    assert activity.is_waiting(11.0)
    for _ in range(REQUESTS_PER_S_MIN):
        activity.count_request()
    # The last complete window counts.
    assert activity.is_waiting(11.5)
    assert not activity.is_waiting(12.0)
    assert activity.is_waiting(13.0)


def test_a_replay_that_reads_is_not_waiting() -> None:
    activity = ReplayActivity(0.0)
    activity.begin_turn(0.0)
    activity.start_reading(0.0)
    assert not activity.is_waiting(1.0)
    activity.stop_reading(1.6)
    assert not activity.is_waiting(2.0)
    activity.start_reading(2.1)
    activity.stop_reading(2.3)
    assert activity.is_waiting(3.0)


def test_a_replay_that_has_not_begun_takes_a_slot_and_does_not_give_way() -> None:
    activity = ReplayActivity(5.0)
    assert not activity.is_waiting(100.0)
    assert SLOTS.choose_to_give_way([RunningReplay("a", activity.turn(1_000.0))], "b") is None
    activity.begin_turn(7.0)
    activity.begin_turn(9.0)
    assert activity.turn(10.0) == Turn(3.0, TURN_PER_START * 2.0)
