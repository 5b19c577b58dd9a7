from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import NotCoordinator
from logbroker.registry.cluster import COORDINATION_SLOTS, BrokerEndpoint
from logbroker.registry.zookeeper.coordination import (
    SlotAction,
    fence_of,
    plan_slot_actions,
    preferred_broker,
)
from logbroker.registry.zookeeper.payloads import Registration
from logbroker.registry.zookeeper.snapshot import (
    BrokerNode,
    BrokerSession,
    ElectedNode,
    SlotNode,
    Snapshot,
    build_view,
    live_brokers,
)

BROKERS = st.sets(st.integers(0, 50), min_size=1, max_size=8)
ME = BrokerSession(1, session_id=101)


def registered(broker_id: int, session_id: int) -> BrokerNode:
    endpoint = BrokerEndpoint(broker_id, "h", 9000 + broker_id)
    return BrokerNode(Registration(endpoint, f"dir-{broker_id}"), session_id, version=0)


def alone_with(slots: dict[int, SlotNode]) -> Snapshot:
    every = tuple(slots.get(number, SlotNode(fence=5)) for number in range(COORDINATION_SLOTS))
    return Snapshot(brokers={1: registered(1, 101)}, slots=every)


@given(BROKERS)
def test_brokers_agree_on_who_is_preferred(brokers: set[int]) -> None:
    for slot in range(COORDINATION_SLOTS):
        chosen = preferred_broker(slot, brokers)
        assert chosen in brokers
        assert preferred_broker(slot, sorted(brokers, reverse=True)) == chosen


@given(BROKERS, st.integers(0, 50))
def test_no_slot_moves_between_two_others_when_a_broker_comes(brokers: set[int], new: int) -> None:
    for slot in range(COORDINATION_SLOTS):
        after = preferred_broker(slot, brokers | {new})
        assert after in (new, preferred_broker(slot, brokers))


def test_slots_are_spread_over_the_brokers() -> None:
    for count in (2, 3, 4):
        load = Counter(preferred_broker(slot, range(count)) for slot in range(COORDINATION_SLOTS))
        assert len(load) == count


def test_a_free_slot_is_claimed_by_the_broker_that_it_prefers() -> None:
    brokers = {1: registered(1, 101), 2: registered(2, 102)}
    snapshot = replace(alone_with({}), brokers=brokers)
    mine = {slot for slot in range(COORDINATION_SLOTS) if preferred_broker(slot, [1, 2]) == 1}
    assert plan_slot_actions(snapshot, ME) == dict.fromkeys(mine, SlotAction.CLAIM)
    others = plan_slot_actions(snapshot, BrokerSession(2, 102))
    assert mine | set(others) == set(range(COORDINATION_SLOTS))
    assert not mine & set(others)


def test_a_holder_makes_room_for_the_broker_that_a_slot_prefers() -> None:
    held = {n: SlotNode(ElectedNode(1, 101), 6) for n in range(COORDINATION_SLOTS)}
    snapshot = alone_with(held)
    assert plan_slot_actions(snapshot, ME) == {}
    snapshot = replace(snapshot, brokers={**snapshot.brokers, 2: registered(2, 102)})
    his = {slot for slot in range(COORDINATION_SLOTS) if preferred_broker(slot, [1, 2]) == 2}
    assert plan_slot_actions(snapshot, ME) == dict.fromkeys(his, SlotAction.RELEASE)
    assert plan_slot_actions(snapshot, BrokerSession(2, 102)) == {}


def test_what_a_dead_predecessor_holds_is_cleared() -> None:
    snapshot = alone_with({3: SlotNode(ElectedNode(1, 77), 6), 4: SlotNode(ElectedNode(2, 78), 6)})
    moves = plan_slot_actions(snapshot, ME)
    assert moves[3] is SlotAction.RELEASE
    assert 4 not in moves


@pytest.mark.parametrize(
    "session", [BrokerSession(1, None), BrokerSession(1, 999), BrokerSession(2, 101)]
)
def test_a_broker_that_is_not_registered_moves_nothing(session: BrokerSession) -> None:
    assert plan_slot_actions(alone_with({}), session) == {}


def test_a_fence_is_known_to_the_holding_session_alone() -> None:
    snapshot = alone_with({3: SlotNode(ElectedNode(1, 101), 6)})
    assert fence_of(snapshot, 101, 3) == 6
    for session_id, slot in ((77, 3), (None, 3), (101, 4), (None, 4)):
        with pytest.raises(NotCoordinator, match=f"slot {slot}"):
            fence_of(snapshot, session_id, slot)


def test_a_broker_without_its_session_is_not_in_its_own_view_but_in_that_of_others() -> None:
    snapshot = replace(
        alone_with({3: SlotNode(ElectedNode(1, 101), 6), 4: SlotNode(ElectedNode(2, 102), 6)}),
        brokers={1: registered(1, 101), 2: registered(2, 102)},
        controller=ElectedNode(1, 101),
    )
    whole = build_view(snapshot, ME, "c")
    assert set(whole.brokers) == {1, 2}
    assert whole.controller_id == 1
    assert whole.coordinators == {3: 1, 4: 2}
    lost = build_view(snapshot, BrokerSession(1, None), "c")
    assert set(lost.brokers) == {2}
    assert lost.controller_id is None
    assert lost.coordinators == {4: 2}
    assert build_view(snapshot, BrokerSession(2, 102), "c") == whole


def test_an_office_of_an_earlier_session_does_not_count() -> None:
    snapshot = replace(
        alone_with({3: SlotNode(ElectedNode(1, 77), 6)}), controller=ElectedNode(1, 77)
    )
    view = build_view(snapshot, ME, "c")
    assert view.controller_id is None
    assert view.coordinators == {}


def test_a_slot_that_is_about_to_be_given_up_is_in_no_view() -> None:
    snapshot = alone_with(
        {3: SlotNode(ElectedNode(1, 101), 6), 4: SlotNode(ElectedNode(1, 101), 6)}
    )
    assert build_view(snapshot, ME, "c", giving_up=[3]).coordinators == {4: 1}


def test_a_broker_whose_registration_cannot_be_read_does_not_live() -> None:
    snapshot = replace(alone_with({}), brokers={1: registered(1, 101), 2: BrokerNode(None, 102, 0)})
    assert set(live_brokers(snapshot, ME)) == {1}
