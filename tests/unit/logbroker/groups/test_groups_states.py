from itertools import product

import pytest

from logbroker.groups.states import (
    TRANSITIONS,
    GroupEvent,
    GroupState,
    IllegalTransition,
    next_state,
)


@pytest.mark.parametrize(("state", "event"), list(product(GroupState, GroupEvent)))
def test_the_table_alone_says_what_may_happen(state: GroupState, event: GroupEvent) -> None:
    if event in TRANSITIONS[state]:
        assert next_state(state, event) is TRANSITIONS[state][event]
    else:
        with pytest.raises(IllegalTransition, match=f"group is {state}; invalid event: {event}"):
            next_state(state, event)


def test_every_state_but_dead_can_be_left_for_dead() -> None:
    can_die = {state for state in GroupState if GroupEvent.RETIRE in TRANSITIONS[state]}
    assert can_die == set(GroupState) - {GroupState.DEAD}
    assert not TRANSITIONS[GroupState.DEAD]


def test_states_have_kafkas_names() -> None:
    assert [str(state) for state in GroupState] == [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        "Dead",
    ]
