"""The life of a consumer group: one table of transitions.

EMPTY ──join──> PREPARING_REBALANCE ──all are back──> COMPLETING_REBALANCE ──assigned──> STABLE
  ^                  │        ^                            │                               │
  └──all are gone────┘        └────────rebalance───────────┴───────────────────────────────┘

Any of them becomes DEAD when the group is deleted, or another broker looks after it.

Source: Kafka, the states of a classic group.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """Where a group stands; the values are what clients are shown."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(StrEnum):
    """What may happen to a group."""

    REBALANCE = "rebalance"
    ALL_ARE_BACK = "all are back"
    ALL_ARE_GONE = "all are gone"
    ASSIGNED = "assigned"
    RETIRE = "retire"


class IllegalTransition(Exception):
    """A group in this state cannot have this event: a defect of ours."""

    def __init__(self, state: GroupState, event: GroupEvent) -> None:
        known = ", ".join(TRANSITIONS[state]) or "nothing, it is over"
        super().__init__(f"group is {state}; {event} is not possible, allowed is {known}")


TRANSITIONS: Final[Mapping[GroupState, Mapping[GroupEvent, GroupState]]] = {
    GroupState.EMPTY: {
        GroupEvent.REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupEvent.RETIRE: GroupState.DEAD,
    },
    # Members give up what they had and join; a new generation begins once all have.
    GroupState.PREPARING_REBALANCE: {
        GroupEvent.ALL_ARE_BACK: GroupState.COMPLETING_REBALANCE,
        GroupEvent.ALL_ARE_GONE: GroupState.EMPTY,
        GroupEvent.RETIRE: GroupState.DEAD,
    },
    # The generation has a number and a leader, and waits for the leader's assignment.
    GroupState.COMPLETING_REBALANCE: {
        GroupEvent.REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupEvent.ASSIGNED: GroupState.STABLE,
        GroupEvent.RETIRE: GroupState.DEAD,
    },
    GroupState.STABLE: {
        GroupEvent.REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupEvent.RETIRE: GroupState.DEAD,
    },
    GroupState.DEAD: {},
}


def next_state(state: GroupState, event: GroupEvent) -> GroupState:
    """Where `event` leads from `state`.

    Raises:
        IllegalTransition: the table has no such step.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None
