"""Ownership of coordination slots: each slot belongs to its preferred live broker.

The ephemeral node `<slot>/holder` names the owner of a slot. A claim creates that node and, in the
same transaction, writes the slot itself, which raises the version of its data. That version is the
fence. An earlier owner knows an older version, so its writes are rejected, however late they
arrive.
"""

import hashlib
import time
from collections.abc import Iterable
from enum import Enum, auto

from logbroker.errors import NotCoordinator
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.payloads import format_slot_holder
from logbroker.registry.zookeeper.session import ZooKeeperSession
from logbroker.registry.zookeeper.snapshot import BrokerSession, SlotNode, Snapshot, live_brokers


class SlotAction(Enum):
    """What a broker does about a slot."""

    CLAIM = auto()
    RELEASE = auto()
    """Remove the holder: this broker in favour of another, or one of its earlier sessions."""


def preferred_broker(slot: int, brokers: Iterable[int]) -> int:
    """Return the broker that a slot prefers, which is the same on every broker.

    Rendezvous hashing: when a broker joins or leaves, no slot moves between two others.
    """
    return max(brokers, key=lambda broker: _weight(slot, broker))


def plan_slot_actions(snapshot: Snapshot, own: BrokerSession) -> dict[int, SlotAction]:
    """Return the actions that this broker has to perform; none unless it is registered."""
    live = live_brokers(snapshot, own)
    if own.broker_id not in live:
        return {}
    moves: dict[int, SlotAction] = {}
    for number, slot in enumerate(snapshot.slots):
        is_wanted = preferred_broker(number, live) == own.broker_id
        if slot.holder is None:
            if is_wanted:
                moves[number] = SlotAction.CLAIM
        elif is_held_in(slot, own.session_id):
            if not is_wanted:
                moves[number] = SlotAction.RELEASE
        elif slot.holder.broker_id == own.broker_id:
            # No other broker is registered under this id, so an earlier process left it.
            moves[number] = SlotAction.RELEASE
    return moves


def is_held_in(slot: SlotNode, session_id: int | None) -> bool:
    """Return whether this session holds a slot; None holds nothing."""
    return slot.holder is not None and slot.holder.session_id == session_id


def fence_of(snapshot: Snapshot, session_id: int | None, slot: int) -> int:
    """Return the fence for writes to a slot that this session holds.

    Raises:
        NotCoordinator: this session does not hold the slot.
    """
    node = snapshot.slots[slot]
    if not is_held_in(node, session_id):
        raise NotCoordinator(f"this broker does not own coordination slot {slot}")
    return node.fence


def perform_slot_action(
    session: ZooKeeperSession,
    snapshot: Snapshot,
    own: BrokerSession,
    number: int,
    move: SlotAction,
) -> None:
    """Claim or release a slot.

    Raises:
        NodeExistsError, NoNodeError, BadVersionError: the snapshot is out of date.
        RegistryUnavailable: the change may have been made or not.
    """
    transaction = session.transaction()
    if move is SlotAction.CLAIM:
        content = format_slot_holder(own.broker_id, int(time.time() * 1000))
        transaction.set_data(paths.slot(number), b"")
        transaction.create(paths.slot_holder(number), content, ephemeral=True)
    else:
        # A delayed request may run after another broker has claimed the slot.
        transaction.check(paths.slot(number), snapshot.slots[number].fence)
        transaction.delete(paths.slot_holder(number))
    session.commit_once(transaction)


def _weight(slot: int, broker: int) -> bytes:
    return hashlib.blake2b(f"{slot} {broker}".encode(), digest_size=8).digest()
