"""Static members: an instance id keeps its place over restarts (KIP-345)."""

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from logbroker.errors import RegistryUnavailable
from logbroker.groups.messages import Commit, MemberIdentity
from logbroker.groups.states import GroupState
from tests.unit.logbroker.groups.group_harness import REBALANCE_S, SESSION_S, GroupHarness


def subscription(*topics: str, owned: bytes = b"") -> tuple[tuple[str, bytes], ...]:
    message = ConsumerProtocolSubscription(version=0, topics=list(topics), user_data=owned)
    return (("range", bytes(message.encode())),)


EVENTS = subscription("events", owned=b"something")
EVENTS_AFTER_RESTART = subscription("events")


def stable_with_statics() -> tuple[GroupHarness, str, str]:
    """A stable group of two static members, `a`, which leads, and `b`."""
    harness = GroupHarness()
    first = harness.joined(harness.join(protocols=EVENTS, instance_id="a")).member_id
    second = harness.join(protocols=EVENTS, instance_id="b")
    harness.join(first, protocols=EVENTS, instance_id="a")
    other = harness.joined(second).member_id
    harness.sync(other, instance_id="b")
    harness.sync(first, instance_id="a", assignments={first: b"1", other: b"2"})
    harness.store()
    assert harness.group.state is GroupState.STABLE
    return harness, first, other


def test_a_restarted_member_takes_its_place_without_a_rebalance() -> None:
    harness, first, second = stable_with_statics()
    token = harness.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    assert harness.is_waiting(token)
    harness.store()
    answer = harness.joined(token)
    assert answer.generation == 2
    assert answer.member_id not in (first, second)
    assert answer.leader == first
    assert harness.assignment(harness.sync(answer.member_id, instance_id="b")) == b"2"
    assert harness.heartbeat(first, instance_id="a") == "ok"


def test_whose_place_was_taken_is_fenced_in_all_it_asks() -> None:
    harness, _, second = stable_with_statics()
    harness.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    harness.store()
    fenced = MemberIdentity(second, "b")
    assert harness.heartbeat(second, instance_id="b") == "FencedInstance"
    assert harness.error_name(harness.sync(second, instance_id="b")) == "FencedInstance"
    assert harness.error_name(harness.join(second, EVENTS, instance_id="b")) == "FencedInstance"
    assert harness.leave(fenced) == ["FencedInstance"]
    assert harness.commit(Commit(fenced, 2)) == "FencedInstance"
    # Without the instance id, the member is unknown.
    assert harness.heartbeat(second) == "UnknownMember"


def test_who_waits_while_its_place_is_taken_is_fenced() -> None:
    harness, _, second = stable_with_statics()
    waiting = harness.join(second, subscription("more"), instance_id="b")
    assert harness.is_waiting(waiting)
    harness.join(protocols=EVENTS, instance_id="b")
    assert harness.error_name(waiting) == "FencedInstance"


def test_a_replacement_is_durable_before_the_response() -> None:
    harness, _, _ = stable_with_statics()
    token = harness.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    harness.store()
    taken = harness.joined(token).member_id
    harness.take_over()
    assert harness.heartbeat(taken, 2, instance_id="b") == "ok"
    assert harness.assignment(harness.sync(taken, instance_id="b")) == b"2"


def test_a_failed_replacement_write_causes_a_rebalance() -> None:
    harness, first, _ = stable_with_statics()
    token = harness.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    harness.store(RegistryUnavailable("gone"))
    assert harness.error_name(token) == "RegistryUnavailable"
    assert harness.heartbeat(first, instance_id="a") == "RebalanceInProgress"


def test_of_two_replacements_only_the_last_is_answered() -> None:
    harness, _, _ = stable_with_statics()
    tokens = [harness.join(protocols=EVENTS_AFTER_RESTART, instance_id="b") for _ in range(2)]
    assert harness.error_name(tokens[0]) == "FencedInstance"
    harness.store()
    assert harness.is_waiting(tokens[1])
    harness.store()
    assert harness.joined(tokens[1]).generation == 2


def test_a_place_taken_in_the_middle_of_a_rebalance_waits_for_its_end() -> None:
    harness, first, _ = stable_with_statics()
    token = harness.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    newcomer = harness.join(protocols=EVENTS)
    harness.store()
    assert harness.is_waiting(token)
    harness.join(first, EVENTS, instance_id="a")
    assert harness.joined(token).generation == harness.joined(newcomer).generation == 3


def test_another_subscription_is_a_reason_to_rebalance() -> None:
    harness, first, _ = stable_with_statics()
    token = harness.join(protocols=subscription("events", "more"), instance_id="b")
    assert harness.heartbeat(first, instance_id="a") == "RebalanceInProgress"
    assert harness.is_waiting(token)


def test_another_protocol_is_a_reason_to_rebalance() -> None:
    harness = GroupHarness()
    both = (*EVENTS, ("sticky", b""))
    first = harness.joined(harness.join(protocols=both, instance_id="a")).member_id
    harness.sync(first, instance_id="a")
    harness.store()
    token = harness.join(protocols=tuple(reversed(both)), instance_id="a")
    assert harness.joined(token).protocol == "sticky"
    assert harness.joined(token).generation == 2


def test_a_restarted_leader_does_not_take_itself_for_the_leader() -> None:
    harness, first, _ = stable_with_statics()
    token = harness.join(protocols=EVENTS, instance_id="a", version=8)
    harness.store()
    answer = harness.joined(token)
    assert (answer.leader, answer.members, answer.skips_assignment) == (first, (), False)
    assert harness.assignment(harness.sync(answer.member_id, instance_id="a")) == b"1"


def test_from_v9_on_a_restarted_leader_leads_and_skips_the_assignment() -> None:
    harness, _, second = stable_with_statics()
    token = harness.join(protocols=EVENTS, instance_id="a", version=9)
    harness.store()
    answer = harness.joined(token)
    assert (answer.leader, answer.skips_assignment) == (answer.member_id, True)
    assert [each.instance_id for each in answer.members] == ["a", "b"]
    follower = harness.join(protocols=EVENTS, instance_id="b", version=9)
    harness.store()
    assert not harness.joined(follower).skips_assignment
    assert harness.joined(follower).member_id != second


def test_a_place_taken_before_the_assignment_is_made_begins_a_new_generation() -> None:
    # The leader knows the old id, so its assignment would have nothing for the new one.
    harness, first, second = stable_with_statics()
    harness.join(second, subscription("more"), instance_id="b")
    harness.join(first, EVENTS, instance_id="a")
    assert harness.group.state is GroupState.COMPLETING_REBALANCE
    token = harness.join(protocols=EVENTS, instance_id="b")
    assert harness.is_waiting(token)
    assert harness.heartbeat(first, instance_id="a") == "RebalanceInProgress"


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    harness = GroupHarness()
    token = harness.join(instance_id="a", session_timeout_ms=50_000)
    first = harness.joined(token).member_id
    newcomer = harness.join(instance_id="b")
    harness.later(REBALANCE_S)
    # The rebalance is over without it, and it is assigned its share all the same.
    assert [each.instance_id for each in harness.joined(newcomer).members] == ["a", "b"]
    assert harness.joined(newcomer).leader == harness.joined(newcomer).member_id
    assert harness.heartbeat(first, 2, instance_id="a") == "ok"


def test_a_rebalance_that_no_static_member_comes_to_ends_with_their_sessions() -> None:
    harness, _, second = stable_with_statics()
    harness.abandon(harness.join(second, subscription("more"), instance_id="b"))
    harness.later(SESSION_S)
    assert harness.group.state is GroupState.EMPTY


def test_an_unknown_instance_id_cannot_join_with_a_member_id() -> None:
    harness, _, second = stable_with_statics()
    assert harness.error_name(harness.join(second, EVENTS, instance_id="c")) == "UnknownMember"
    assert harness.heartbeat(second, instance_id="c") == "UnknownMember"


@pytest.mark.parametrize(("instance_id", "outcome"), [("b", "ok"), ("c", "UnknownMember")])
def test_an_administrator_removes_a_static_member_by_its_instance_id(
    instance_id: str, outcome: str
) -> None:
    harness, first, _ = stable_with_statics()
    assert harness.leave(MemberIdentity("", instance_id)) == [outcome]
    expected = "RebalanceInProgress" if outcome == "ok" else "ok"
    assert harness.heartbeat(first, instance_id="a") == expected
