"""Static members: an instance id keeps its place over restarts (KIP-345)."""

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from logbroker.errors import RegistryUnavailable
from logbroker.groups.messages import Commit, MemberIdentity
from logbroker.groups.states import GroupState
from tests.unit.logbroker.groups.group_desk import REBALANCE_S, SESSION_S, Desk


def subscription(*topics: str, owned: bytes = b"") -> tuple[tuple[str, bytes], ...]:
    message = ConsumerProtocolSubscription(version=0, topics=list(topics), user_data=owned)
    return (("range", bytes(message.encode())),)


EVENTS = subscription("events", owned=b"something")
EVENTS_AFTER_RESTART = subscription("events")


def stable_with_statics() -> tuple[Desk, str, str]:
    """A stable group of two static members, `a`, which leads, and `b`."""
    desk = Desk()
    first = desk.joined(desk.join(protocols=EVENTS, instance_id="a")).member_id
    second = desk.join(protocols=EVENTS, instance_id="b")
    desk.join(first, protocols=EVENTS, instance_id="a")
    other = desk.joined(second).member_id
    desk.sync(other, instance_id="b")
    desk.sync(first, instance_id="a", assignments={first: b"1", other: b"2"})
    desk.store()
    assert desk.group.state is GroupState.STABLE
    return desk, first, other


def test_a_restarted_member_takes_its_place_without_a_rebalance() -> None:
    desk, first, second = stable_with_statics()
    token = desk.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    assert desk.is_waiting(token)
    desk.store()
    answer = desk.joined(token)
    assert answer.generation == 2
    assert answer.member_id not in (first, second)
    assert answer.leader == first
    assert desk.assignment(desk.sync(answer.member_id, instance_id="b")) == b"2"
    assert desk.heartbeat(first, instance_id="a") == "ok"


def test_whose_place_was_taken_is_fenced_in_all_it_asks() -> None:
    desk, _, second = stable_with_statics()
    desk.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    desk.store()
    fenced = MemberIdentity(second, "b")
    assert desk.heartbeat(second, instance_id="b") == "FencedInstance"
    assert desk.refusal(desk.sync(second, instance_id="b")) == "FencedInstance"
    assert desk.refusal(desk.join(second, EVENTS, instance_id="b")) == "FencedInstance"
    assert desk.leave(fenced) == ["FencedInstance"]
    assert desk.commit(Commit(fenced, 2)) == "FencedInstance"
    # Without the instance id it is merely nobody.
    assert desk.heartbeat(second) == "UnknownMember"


def test_who_waits_while_its_place_is_taken_is_fenced() -> None:
    desk, _, second = stable_with_statics()
    waiting = desk.join(second, subscription("more"), instance_id="b")
    assert desk.is_waiting(waiting)
    desk.join(protocols=EVENTS, instance_id="b")
    assert desk.refusal(waiting) == "FencedInstance"


def test_a_replacement_is_durable_before_the_response() -> None:
    desk, _, _ = stable_with_statics()
    token = desk.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    desk.store()
    taken = desk.joined(token).member_id
    desk.take_over()
    assert desk.heartbeat(taken, 2, instance_id="b") == "ok"
    assert desk.assignment(desk.sync(taken, instance_id="b")) == b"2"


def test_a_failed_replacement_write_causes_a_rebalance() -> None:
    desk, first, _ = stable_with_statics()
    token = desk.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    desk.store(RegistryUnavailable("gone"))
    assert desk.refusal(token) == "RegistryUnavailable"
    assert desk.heartbeat(first, instance_id="a") == "RebalanceInProgress"


def test_of_two_replacements_only_the_last_is_answered() -> None:
    desk, _, _ = stable_with_statics()
    tokens = [desk.join(protocols=EVENTS_AFTER_RESTART, instance_id="b") for _ in range(2)]
    assert desk.refusal(tokens[0]) == "FencedInstance"
    desk.store()
    assert desk.is_waiting(tokens[1])
    desk.store()
    assert desk.joined(tokens[1]).generation == 2


def test_a_place_taken_in_the_middle_of_a_rebalance_waits_for_its_end() -> None:
    desk, first, _ = stable_with_statics()
    token = desk.join(protocols=EVENTS_AFTER_RESTART, instance_id="b")
    newcomer = desk.join(protocols=EVENTS)
    desk.store()
    assert desk.is_waiting(token)
    desk.join(first, EVENTS, instance_id="a")
    assert desk.joined(token).generation == desk.joined(newcomer).generation == 3


def test_another_subscription_is_a_reason_to_rebalance() -> None:
    desk, first, _ = stable_with_statics()
    token = desk.join(protocols=subscription("events", "more"), instance_id="b")
    assert desk.heartbeat(first, instance_id="a") == "RebalanceInProgress"
    assert desk.is_waiting(token)


def test_another_protocol_is_a_reason_to_rebalance() -> None:
    desk = Desk()
    both = (*EVENTS, ("sticky", b""))
    first = desk.joined(desk.join(protocols=both, instance_id="a")).member_id
    desk.sync(first, instance_id="a")
    desk.store()
    token = desk.join(protocols=tuple(reversed(both)), instance_id="a")
    assert desk.joined(token).protocol == "sticky"
    assert desk.joined(token).generation == 2


def test_a_restarted_leader_does_not_take_itself_for_the_leader() -> None:
    desk, first, _ = stable_with_statics()
    token = desk.join(protocols=EVENTS, instance_id="a", version=8)
    desk.store()
    answer = desk.joined(token)
    assert (answer.leader, answer.members, answer.skips_assignment) == (first, (), False)
    assert desk.assignment(desk.sync(answer.member_id, instance_id="a")) == b"1"


def test_from_v9_on_a_restarted_leader_leads_and_skips_the_assignment() -> None:
    desk, _, second = stable_with_statics()
    token = desk.join(protocols=EVENTS, instance_id="a", version=9)
    desk.store()
    answer = desk.joined(token)
    assert (answer.leader, answer.skips_assignment) == (answer.member_id, True)
    assert [each.instance_id for each in answer.members] == ["a", "b"]
    follower = desk.join(protocols=EVENTS, instance_id="b", version=9)
    desk.store()
    assert not desk.joined(follower).skips_assignment
    assert desk.joined(follower).member_id != second


def test_a_place_taken_before_the_assignment_is_made_begins_a_new_generation() -> None:
    # The leader was told the old id, so its assignment would have nothing for the new one.
    desk, first, second = stable_with_statics()
    desk.join(second, subscription("more"), instance_id="b")
    desk.join(first, EVENTS, instance_id="a")
    assert desk.group.state is GroupState.COMPLETING_REBALANCE
    token = desk.join(protocols=EVENTS, instance_id="b")
    assert desk.is_waiting(token)
    assert desk.heartbeat(first, instance_id="a") == "RebalanceInProgress"


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    desk = Desk()
    token = desk.join(instance_id="a", session_timeout_ms=50_000)
    first = desk.joined(token).member_id
    newcomer = desk.join(instance_id="b")
    desk.later(REBALANCE_S)
    # The rebalance is over without it, and it is assigned its share all the same.
    assert [each.instance_id for each in desk.joined(newcomer).members] == ["a", "b"]
    assert desk.joined(newcomer).leader == desk.joined(newcomer).member_id
    assert desk.heartbeat(first, 2, instance_id="a") == "ok"


def test_a_rebalance_that_no_static_member_comes_to_ends_with_their_sessions() -> None:
    desk, _, second = stable_with_statics()
    desk.abandon(desk.join(second, subscription("more"), instance_id="b"))
    desk.later(SESSION_S)
    assert desk.group.state is GroupState.EMPTY


def test_an_unknown_instance_id_cannot_join_with_a_member_id() -> None:
    desk, _, second = stable_with_statics()
    assert desk.refusal(desk.join(second, EVENTS, instance_id="c")) == "UnknownMember"
    assert desk.heartbeat(second, instance_id="c") == "UnknownMember"


@pytest.mark.parametrize(("instance_id", "told"), [("b", "ok"), ("c", "UnknownMember")])
def test_an_administrator_removes_a_static_member_by_its_instance_id(
    instance_id: str, told: str
) -> None:
    desk, first, _ = stable_with_statics()
    assert desk.leave(MemberIdentity("", instance_id)) == [told]
    expected = "RebalanceInProgress" if told == "ok" else "ok"
    assert desk.heartbeat(first, instance_id="a") == expected
