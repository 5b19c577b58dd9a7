"""Who coordinates the groups of a slot: the broker that the slot prefers, once it is free.

A slot is held by the ephemeral node `<slot>/holder`. A claim makes that node and, in the same
transaction, writes to the slot itself, which raises the version of its data. That version is
the fence: a broker that held the slot before knows an older one, and its writes are refused.
So a broker whose session is over, or that was stopped for an hour, changes nothing any more,
however late its requests arrive.
"""

import hashlib
import time
from collections.abc import Iterable
from enum import Enum, auto

from logbroker.errors import NotCoordinator
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.facts import Facts, Seat, SlotNode, live_brokers
from logbroker.registry.zookeeper.payloads import format_slot_holder
from logbroker.registry.zookeeper.session import ZooKeeperSession


class Move(Enum):
    """What a broker does about a slot."""

    CLAIM = auto()
    CLEAR = auto()
    """Remove the holder: this broker, for the sake of another, or one of its earlier sessions."""


def preferred_broker(slot: int, brokers: Iterable[int]) -> int:
    """The one of `brokers` that a slot prefers, the same at every broker.

    By rendezvous hashing: when a broker comes or goes, no slot moves between two others.
    """
    return max(brokers, key=lambda broker: _weight(slot, broker))


def plan_slots(facts: Facts, seat: Seat) -> dict[int, Move]:
    """What the broker in `seat` has to do now; nothing while it is not registered."""
    live = live_brokers(facts, seat)
    if seat.broker_id not in live:
        return {}
    moves: dict[int, Move] = {}
    for number, slot in enumerate(facts.slots):
        is_wanted = preferred_broker(number, live) == seat.broker_id
        if slot.holder is None:
            if is_wanted:
                moves[number] = Move.CLAIM
        elif is_held_in(slot, seat.session_id):
            if not is_wanted:
                moves[number] = Move.CLEAR
        elif slot.holder.broker_id == seat.broker_id:
            # Nobody else is registered under this id, so it is what a dead predecessor left.
            moves[number] = Move.CLEAR
    return moves


def is_held_in(slot: SlotNode, session_id: int | None) -> bool:
    """Whether a slot is this session's; nothing is that of none."""
    return slot.holder is not None and slot.holder.session_id == session_id


def fence_of(facts: Facts, session_id: int | None, slot: int) -> int:
    """The fence that a write under a slot has to pass, if this session holds it.

    Raises:
        NotCoordinator: it does not.
    """
    node = facts.slots[slot]
    if not is_held_in(node, session_id):
        raise NotCoordinator(f"coordination slot {slot} is not this broker's")
    return node.fence


def make_move(session: ZooKeeperSession, facts: Facts, seat: Seat, number: int, move: Move) -> None:
    """Claim or clear a slot.

    Raises:
        NodeExistsError, NoNodeError, BadVersionError: the facts are no longer true.
        RegistryUnavailable: it may have been done or not.
    """
    transaction = session.transaction()
    if move is Move.CLAIM:
        content = format_slot_holder(seat.broker_id, int(time.time() * 1000))
        transaction.set_data(paths.slot(number), b"")
        transaction.create(paths.slot_holder(number), content, ephemeral=True)
    else:
        # Asked for in one session it may be done in the next, where another may hold the slot.
        transaction.check(paths.slot(number), facts.slots[number].fence)
        transaction.delete(paths.slot_holder(number))
    session.commit_once(transaction)


def _weight(slot: int, broker: int) -> bytes:
    return hashlib.blake2b(f"{slot} {broker}".encode(), digest_size=8).digest()
