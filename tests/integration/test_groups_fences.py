"""A coordinator writes only on the basis of what it has loaded."""

import pytest

from logbroker.errors import NotCoordinator
from logbroker.groups.stored import CommittedOffset
from logbroker.registry.cluster import COORDINATION_SLOTS, coordination_slot
from tests.support.kafka.registry_members import cluster_at, settle
from tests.support.kafka.zookeeper import SharedZooKeeper


def test_a_reacquired_slot_is_loaded_again(zookeeper: SharedZooKeeper) -> None:
    offsets = {("events", 0): CommittedOffset(1)}
    with cluster_at(zookeeper.fresh_chroot()) as cluster:
        first = cluster.join_broker(1)
        settle(first)
        for slot in range(COORDINATION_SLOTS):
            first.registry.load_groups(slot)
        second = cluster.join_broker(2)
        settle(first, second)
        slot = min(second.slots)
        group = next(f"g{n}" for n in range(1_000) if coordination_slot(f"g{n}") == slot)
        second.registry.commit_offsets(group, offsets)
        second.registry.close()
        settle(first)
        # It holds the slot, but what it knows of it is from before.
        with pytest.raises(NotCoordinator):
            first.registry.commit_offsets(group, {("events", 0): CommittedOffset(0)})
        (read,) = first.registry.load_groups(slot)
        assert read.offsets == offsets
        first.registry.commit_offsets(group, {("events", 0): CommittedOffset(2)})
