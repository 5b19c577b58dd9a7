import pytest

from app.domain.states import (
    ACTIVE,
    TERMINAL,
    TRANSITIONS,
    IllegalTransition,
    ReplayEvent,
    ReplayState,
    moves,
    next_state,
)

S, E = ReplayState, ReplayEvent


def test_a_replay_goes_from_open_to_completed() -> None:
    state = S.OPEN
    path = []
    for event in (E.CLAIM, E.HEARTBEAT, E.BEGIN, E.CHECKPOINT, E.COMPLETE):
        state = next_state(state, event)
        path.append(state)
    assert path == [S.STARTED, S.STARTED, S.ONGOING, S.ONGOING, S.COMPLETED]


def test_every_state_is_in_the_table_and_every_event_leads_somewhere() -> None:
    assert set(TRANSITIONS) == set(ReplayState)
    assert all(moves(event) for event in ReplayEvent)


def test_only_a_failed_replay_that_is_resumed_leaves_a_terminal_state() -> None:
    assert {S.COMPLETED, S.FAILED, S.CANCELLED} == TERMINAL
    assert {S.OPEN, S.STARTED, S.ONGOING, S.PAUSED} == ACTIVE
    leaving = {
        (state, event)
        for state in TERMINAL
        for event, target in TRANSITIONS[state].items()
        if target is not state
    }
    assert leaving == {(S.FAILED, E.RESUME)}


def test_an_active_replay_can_be_paused_and_resumed() -> None:
    assert moves(E.PAUSE) == dict.fromkeys((S.OPEN, S.STARTED, S.ONGOING), S.PAUSED)
    assert moves(E.RESUME) == {S.PAUSED: S.OPEN, S.FAILED: S.OPEN}


def test_a_last_checkpoint_changes_no_state() -> None:
    stopped = (S.ONGOING, S.PAUSED, S.CANCELLED)
    assert moves(E.CHECKPOINT) == {state: state for state in stopped}


def test_every_active_replay_can_be_cancelled() -> None:
    assert moves(E.CANCEL) == dict.fromkeys(ACTIVE, S.CANCELLED)


def test_a_takeover_keeps_the_state() -> None:
    assert moves(E.TAKE_OVER) == {S.STARTED: S.STARTED, S.ONGOING: S.ONGOING}


def test_a_released_replay_is_open() -> None:
    assert moves(E.RELEASE) == {S.STARTED: S.OPEN, S.ONGOING: S.OPEN}


@pytest.mark.parametrize("event", list(ReplayEvent))
def test_an_event_leads_to_a_terminal_state_always_or_never(event: ReplayEvent) -> None:
    targets = [target for state, target in moves(event).items() if state in ACTIVE]
    assert len({target in TERMINAL for target in targets}) == 1


def test_an_illegal_transition_names_state_event_and_allowed_events() -> None:
    with pytest.raises(IllegalTransition, match=r"complete .* claim, pause, cancel"):
        next_state(S.OPEN, E.COMPLETE)
    with pytest.raises(IllegalTransition, match="allowed is nothing"):
        next_state(S.COMPLETED, E.CANCEL)
