"""The states of a consumer group, and one table of transitions.

EMPTY ──join──> PREPARING_REBALANCE ──all joined──> COMPLETING_REBALANCE ──assigned──> STABLE
  ^                  │        ^                           │                              │
  └─────all left─────┘        └────────rebalance──────────┴──────────────────────────────┘

Every state becomes DEAD when the group is deleted, or when another broker coordinates it.

Source: Kafka, the states of a classic group.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class GroupState(StrEnum):
    """The state of a group; clients see the values."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(StrEnum):
    """The events that change a group's state."""

    REBALANCE = "rebalance"
    ALL_JOINED = "all joined"
    ALL_LEFT = "all left"
    ASSIGNED = "assigned"
    RETIRE = "retire"


class IllegalTransition(Exception):
    """The state does not allow the event: a bug in the coordinator."""

    def __init__(self, state: GroupState, event: GroupEvent) -> None:
        allowed = ", ".join(TRANSITIONS[state]) or "none"
        super().__init__(f"group is {state}; invalid event: {event}; allowed: {allowed}")


TRANSITIONS: Final[Mapping[GroupState, Mapping[GroupEvent, GroupState]]] = {
    GroupState.EMPTY: {
        GroupEvent.REBALANCE: GroupState.PREPARING_REBALANCE,
        GroupEvent.RETIRE: GroupState.DEAD,
    },
    # Members revoke their partitions and join; a new generation starts once all have joined.
    GroupState.PREPARING_REBALANCE: {
        GroupEvent.ALL_JOINED: GroupState.COMPLETING_REBALANCE,
        GroupEvent.ALL_LEFT: GroupState.EMPTY,
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
    """Return the state after `event`.

    Raises:
        IllegalTransition: the table does not contain the transition.
    """
    try:
        return TRANSITIONS[state][event]
    except KeyError:
        raise IllegalTransition(state, event) from None
