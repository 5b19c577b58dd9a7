"""Joining, leaving and being silent, as Kafka's classic groups have it."""

from dataclasses import replace
from typing import Any

import pytest

from logbroker.errors import NotCoordinator, RegistryUnavailable
from logbroker.groups.messages import Commit, ErrorResponse, MemberIdentity
from logbroker.groups.states import GroupState
from tests.unit.logbroker.groups.group_desk import LIMITS, REBALANCE_S, SESSION_S, Desk

RANGE_AND_STICKY = (("range", b"r"), ("sticky", b"s"))
STICKY_AND_RANGE = (("sticky", b"s"), ("range", b"r"))


def test_a_lone_member_leads_and_gets_what_it_assigns() -> None:
    desk = Desk()
    joined = desk.joined(desk.join())
    assert (joined.generation, joined.protocol, joined.protocol_type) == (1, "range", "consumer")
    assert joined.leader == joined.member_id
    assert [(each.member_id, each.subscription) for each in joined.members] == [
        (joined.member_id, b"range subscription")
    ]
    token = desk.sync(joined.member_id, assignments={joined.member_id: b"everything"})
    assert desk.is_waiting(token)
    desk.store()
    assert desk.assignment(token) == b"everything"
    assert desk.group.state is GroupState.STABLE
    assert desk.heartbeat(joined.member_id) == "ok"


def test_an_assignment_is_returned_only_after_it_is_stored() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    follower = desk.join(second, protocols=(("range", b"changed"),))
    leader = desk.join(first)
    assert desk.joined(follower).generation == desk.joined(leader).generation == 3
    tokens = [desk.sync(second), desk.sync(first, assignments={first: b"1", second: b"2"})]
    assert all(map(desk.is_waiting, tokens))
    assert desk.unwritten[0].membership.generation == 3
    desk.store()
    assert [desk.assignment(token) for token in tokens] == [b"2", b"1"]


def test_only_the_leader_receives_the_member_list() -> None:
    desk = Desk()
    leader, _, _ = desk.stable(3)
    tokens = [desk.join(member) for member in desk.members]
    answers = [desk.joined(token) for token in tokens]
    assert [len(answer.members) for answer in answers] == [3, 0, 0]
    assert {answer.leader for answer in answers} == {leader}


def test_a_member_the_leader_forgets_gets_nothing() -> None:
    desk = Desk()
    member = desk.joined(desk.join()).member_id
    token = desk.sync(member, assignments={"somebody else": b"everything"})
    desk.store()
    assert desk.assignment(token) == b""
    assert [each.member_id for each in desk.durable_members] == [member]


def test_members_wait_for_all_the_others_to_join_again() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    third = desk.join()
    assert desk.heartbeat(first) == desk.heartbeat(second) == "RebalanceInProgress"
    again = desk.join(first)
    assert desk.is_waiting(third)
    assert desk.is_waiting(again)
    desk.join(second)
    assert desk.joined(third).generation == desk.joined(again).generation == 3


def test_who_does_not_join_again_is_dropped_when_the_rebalance_times_out() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    token = desk.join(first)
    for _ in range(5):
        assert desk.heartbeat(second) == "RebalanceInProgress"
        desk.later(REBALANCE_S / 6)
    assert desk.is_waiting(token)
    desk.later(REBALANCE_S / 6)
    assert desk.joined(token).members[0].member_id == first
    assert desk.heartbeat(second) == "UnknownMember"


def test_the_longest_rebalance_timeout_of_all_members_counts() -> None:
    desk = Desk()
    (first,) = desk.stable(1, session_timeout_ms=60_000, rebalance_timeout_ms=1_000)
    patient = desk.join(rebalance_timeout_ms=50_000)
    desk.later(49.9)
    assert desk.is_waiting(patient)
    desk.later(0.1)
    assert desk.joined(patient).generation == 2
    assert desk.heartbeat(first) == "UnknownMember"


def test_without_a_rebalance_timeout_the_session_timeout_counts() -> None:
    # JoinGroup v0 has none, and 0 would drop everybody for ever.
    desk = Desk()
    desk.stable(1, rebalance_timeout_ms=-1)
    token = desk.join(rebalance_timeout_ms=-1)
    desk.later(SESSION_S - 0.1)
    assert desk.is_waiting(token)
    desk.later(0.1)
    assert desk.joined(token).generation == 2


def test_an_expired_member_is_removed_and_the_others_rebalance() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    desk.later(SESSION_S - 0.1)
    assert desk.heartbeat(first) == "ok"
    desk.later(0.1)
    assert desk.heartbeat(first) == "RebalanceInProgress"
    assert desk.heartbeat(second) == "UnknownMember"


def test_a_member_that_waits_does_not_expire() -> None:
    desk = Desk()
    first, _ = desk.stable(2, rebalance_timeout_ms=50_000)
    token = desk.join(first, rebalance_timeout_ms=50_000)
    # Its companion's session ends; its own would have, too.
    desk.later(SESSION_S)
    assert desk.joined(token).generation == 3
    waiting = desk.sync(first, assignments={first: b"all"})
    desk.later(5 * SESSION_S)
    desk.store()
    assert desk.assignment(waiting) == b"all"
    desk.later(SESSION_S - 0.1)
    assert desk.heartbeat(first) == "ok"


def test_a_leader_that_dies_before_it_assigns_is_replaced() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    desk.join(second, protocols=(("range", b"changed"),))
    desk.join(first)
    token = desk.sync(second)
    desk.later(SESSION_S)
    assert desk.refusal(token) == "RebalanceInProgress"
    assert desk.joined(desk.join(second)).leader == second


def test_who_joins_and_never_syncs_is_dropped_when_the_rebalance_times_out() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    desk.join(second, protocols=(("range", b"changed"),))
    desk.join(first)
    desk.sync(first, assignments={first: b"1", second: b"2"})
    desk.store()
    for _ in range(6):
        assert desk.heartbeat(second) == desk.heartbeat(first) == "ok"
        desk.later(REBALANCE_S / 6)
    assert desk.heartbeat(second) == "UnknownMember"
    assert desk.heartbeat(first) == "RebalanceInProgress"


def test_a_leaving_member_is_removed_immediately() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    assert desk.leave(second, "nobody", second) == ["ok", "UnknownMember", "UnknownMember"]
    assert desk.joined(desk.join(first)).generation == 3
    assert desk.heartbeat(second, 2) == "UnknownMember"


def test_a_waiting_request_of_a_leaving_member_is_rejected() -> None:
    desk = Desk()
    first, _ = desk.stable(2)
    token = desk.join(first)
    assert desk.leave(first) == ["ok"]
    assert desk.refusal(token) == "UnknownMember"


def test_a_group_that_everybody_left_keeps_its_generation() -> None:
    desk = Desk()
    (member,) = desk.stable(1)
    assert desk.leave(member) == ["ok"]
    assert desk.group.state is GroupState.EMPTY
    desk.store()
    assert desk.durable is not None
    assert (desk.durable.generation, desk.durable.members) == (2, ())
    desk.take_over()
    assert not desk.group.has_no_state
    assert desk.joined(desk.join()).generation == 3


def test_the_group_waits_a_little_for_its_first_members() -> None:
    desk = Desk(replace(LIMITS, initial_rebalance_delay_s=3.0))
    first = desk.join()
    desk.later(2.9)
    second = desk.join()
    desk.later(0.1)
    # One came, so it waits again; none comes now.
    assert desk.is_waiting(first)
    desk.later(2.9)
    assert desk.is_waiting(second)
    desk.later(0.1)
    assert len(desk.joined(first).members) == 2
    assert desk.joined(second).generation == 1


def test_the_group_does_not_wait_for_its_first_members_for_ever() -> None:
    desk = Desk(replace(LIMITS, initial_rebalance_delay_s=3.0))
    tokens = [desk.join(rebalance_timeout_ms=7_000)]
    for _ in range(3):
        desk.later(2.0)
        tokens.append(desk.join(rebalance_timeout_ms=7_000))
    assert all(map(desk.is_waiting, tokens))
    desk.later(1.0)
    assert len(desk.joined(tokens[0]).members) == 4


def test_a_lone_first_member_waits_once() -> None:
    desk = Desk(replace(LIMITS, initial_rebalance_delay_s=3.0))
    token = desk.join()
    desk.later(3.0)
    assert desk.joined(token).generation == 1


def test_a_new_member_is_given_its_id_first_from_v4_on() -> None:
    desk = Desk()
    token = desk.join(version=4)
    assert desk.refusal(token) == "MemberIdRequired"
    member_id = desk.returned_id(token)
    assert desk.group.state is GroupState.EMPTY
    assert desk.heartbeat(member_id) == "UnknownMember"
    assert desk.joined(desk.join(member_id, version=4)).member_id == member_id


@pytest.mark.parametrize("version", [0, 3])
def test_an_older_client_is_not_asked_to_come_twice(version: int) -> None:
    desk = Desk()
    assert desk.joined(desk.join(version=version)).generation == 1


def test_a_static_member_is_not_asked_to_come_twice() -> None:
    desk = Desk()
    assert desk.joined(desk.join(version=5, instance_id="one")).generation == 1


def test_an_id_that_is_not_used_is_forgotten_after_the_session_timeout() -> None:
    desk = Desk()
    member_id = desk.returned_id(desk.join(version=4))
    assert not desk.group.has_no_state
    desk.later(SESSION_S)
    assert desk.group.has_no_state
    assert desk.refusal(desk.join(member_id, version=4)) == "UnknownMember"


def test_a_rebalance_waits_for_those_who_have_just_got_their_id() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    member_id = desk.returned_id(desk.join(version=4))
    token = desk.join(first, protocols=(("range", b"changed"),))
    assert desk.is_waiting(token)
    other = desk.join(member_id, version=4)
    assert desk.joined(token).generation == desk.joined(other).generation == 2


def test_an_id_given_back_lets_the_rebalance_go_on() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    member_id = desk.returned_id(desk.join(version=4))
    token = desk.join(first, protocols=(("range", b"changed"),))
    assert desk.leave(member_id) == ["ok"]
    assert desk.joined(token).generation == 2


def test_a_returned_id_does_not_affect_other_members() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    assert desk.leave(desk.returned_id(desk.join(version=4))) == ["ok"]
    assert desk.heartbeat(first) == "ok"


def test_a_follower_that_rejoins_unchanged_causes_no_rebalance() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    answer = desk.joined(desk.join(second))
    assert (answer.generation, answer.leader, answer.members) == (2, first, ())
    assert desk.assignment(desk.sync(second)) == second.encode()
    assert desk.heartbeat(first) == "ok"


def test_a_leader_that_rejoins_starts_a_rebalance() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    token = desk.join(first)
    assert desk.heartbeat(second) == "RebalanceInProgress"
    desk.join(second)
    assert desk.joined(token).generation == 3


def test_who_has_not_heard_the_answer_to_its_join_hears_it_again() -> None:
    desk = Desk()
    first = desk.joined(desk.join())
    assert desk.joined(desk.join(first.member_id)) == first


def test_a_second_request_of_a_member_supersedes_the_first() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    joins = [desk.join(first), desk.join(first)]
    assert desk.refusal(joins[0]) == "RebalanceInProgress"
    desk.join(second)
    assert desk.joined(joins[1]).generation == 3
    syncs = [desk.sync(second), desk.sync(second)]
    assert desk.refusal(syncs[0]) == "RebalanceInProgress"


def test_a_leader_cannot_change_its_mind_while_its_assignment_is_stored() -> None:
    desk = Desk()
    member = desk.joined(desk.join()).member_id
    desk.sync(member, assignments={member: b"first"})
    token = desk.sync(member, assignments={member: b"second"})
    assert len(desk.unwritten) == 1
    desk.store()
    assert desk.assignment(token) == b"first"


def test_the_protocol_is_one_that_all_know_and_most_prefer() -> None:
    desk = Desk()
    (first,) = desk.stable(1, protocols=RANGE_AND_STICKY)
    desk.join(protocols=STICKY_AND_RANGE)
    third = desk.join(protocols=(("other", b""), *STICKY_AND_RANGE))
    token = desk.join(first, protocols=RANGE_AND_STICKY)
    assert desk.joined(token).protocol == desk.joined(third).protocol == "sticky"
    assert [each.subscription for each in desk.joined(token).members] == [b"s", b"s", b"s"]


@pytest.mark.parametrize(
    "stranger",
    [
        {"protocols": (("sticky", b""),)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_a_member_without_common_protocol_is_rejected(stranger: dict[str, Any]) -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    assert desk.refusal(desk.join(**stranger)) == "InconsistentGroupProtocol"
    assert desk.heartbeat(first) == "ok"


def test_a_lone_member_may_come_back_with_another_protocol() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    token = desk.join(first, protocols=(("sticky", b""),))
    assert desk.joined(token).protocol == "sticky"


def test_an_empty_group_takes_any_protocol_but_none() -> None:
    desk = Desk()
    assert desk.refusal(desk.join(protocols=())) == "InconsistentGroupProtocol"
    assert desk.refusal(desk.join(protocol_type="")) == "InconsistentGroupProtocol"
    assert desk.group.has_no_state


@pytest.mark.parametrize("timeout_ms", [999, 60_001, 0, -1])
def test_a_session_timeout_out_of_range_is_rejected(timeout_ms: int) -> None:
    desk = Desk()
    token = desk.join(session_timeout_ms=timeout_ms)
    assert desk.refusal(token) == "InvalidSessionTimeout"


def test_a_full_group_accepts_only_its_members() -> None:
    desk = Desk()
    first, *_ = desk.stable(3)
    pending = desk.returned_id(desk.join(version=4))
    assert desk.refusal(desk.join()) == "GroupTooLarge"
    assert desk.refusal(desk.join(version=4)) == "GroupTooLarge"
    assert desk.is_waiting(desk.join(pending, version=4))
    assert desk.is_waiting(desk.join(first))


def test_subscriptions_that_would_not_fit_what_is_stored_are_refused() -> None:
    desk = Desk()
    large = (("range", b"." * 150_000),)
    for _ in range(2):
        desk.join(protocols=large)
    assert desk.refusal(desk.join(protocols=large)) == "GroupTooLarge"
    assert desk.refusal(desk.join(protocols=(("range", b"." * 400_001),))) == "GroupTooLarge"
    # Whoever joins again counts once.
    member_id = desk.group.describe().members[0].member_id
    again = desk.join(member_id, protocols=(("range", b"." * 250_000),))
    assert not isinstance(desk.answers.get(again), ErrorResponse)


@pytest.mark.parametrize("member_id", ["nobody", "member-1"])
def test_an_empty_group_has_no_members(member_id: str) -> None:
    desk = Desk()
    assert desk.refusal(desk.join(member_id)) == "UnknownMember"
    assert desk.refusal(desk.sync(member_id)) == "UnknownMember"
    assert desk.heartbeat(member_id) == "UnknownMember"
    assert desk.leave(member_id) == ["UnknownMember"]
    assert desk.group.has_no_state


def test_another_generation_is_rejected() -> None:
    desk = Desk()
    first, _ = desk.stable(2)
    for generation in (1, 3, -1):
        assert desk.heartbeat(first, generation) == "IllegalGeneration"
        assert desk.refusal(desk.sync(first, generation)) == "IllegalGeneration"


def test_another_protocol_than_the_chosen_is_refused() -> None:
    desk = Desk()
    (first,) = desk.stable(1)
    assert desk.refusal(desk.sync(first, protocol="sticky")) == "InconsistentGroupProtocol"
    assert desk.assignment(desk.sync(first, protocol="range")) == first.encode()


def test_no_assignment_is_returned_during_a_rebalance() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    desk.leave(second)
    assert desk.refusal(desk.sync(first)) == "RebalanceInProgress"


def test_a_failed_write_is_reported_and_causes_a_rebalance() -> None:
    desk = Desk()
    member = desk.joined(desk.join()).member_id
    token = desk.sync(member, assignments={member: b"lost"})
    desk.store(RegistryUnavailable("gone"))
    assert desk.refusal(token) == "RegistryUnavailable"
    assert desk.heartbeat(member) == "RebalanceInProgress"
    assert desk.joined(desk.join(member)).generation == 2


def test_a_write_that_ends_too_late_changes_nothing() -> None:
    desk = Desk()
    member = desk.joined(desk.join()).member_id
    token = desk.sync(member, assignments={member: b"old"})
    newcomer = desk.join()
    assert desk.refusal(token) == "RebalanceInProgress"
    desk.join(member)
    assert desk.joined(newcomer).generation == 2
    desk.store()
    assert desk.group.state is GroupState.COMPLETING_REBALANCE


def test_a_new_member_whose_connection_closes_is_forgotten() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    newcomer = desk.join()
    token = desk.join(first)
    desk.abandon(newcomer)
    desk.join(second)
    assert len(desk.joined(token).members) == 2
    assert desk.is_waiting(newcomer)


def test_a_known_member_whose_connection_closes_may_come_back_within_its_session() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    lost = desk.join(second, protocols=(("range", b"changed"),))
    desk.abandon(lost)
    token = desk.join(first)
    assert desk.is_waiting(token)
    desk.later(SESSION_S - 0.1)
    desk.join(second)
    assert len(desk.joined(token).members) == 2


def test_a_known_member_whose_connection_closes_expires() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    desk.abandon(desk.join(second, protocols=(("range", b"changed"),)))
    token = desk.join(first)
    desk.later(SESSION_S)
    assert len(desk.joined(token).members) == 1


def test_waiting_requests_are_rejected_when_the_coordinator_moves() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    tokens = [desk.join(second, protocols=(("range", b"changed"),)), desk.join()]
    desk.retire(NotCoordinator("moved"))
    assert [desk.refusal(token) for token in tokens] == ["NotCoordinator", "NotCoordinator"]
    assert desk.group.state is GroupState.DEAD
    assert first not in desk.answers


def test_the_next_coordinator_goes_on_with_the_same_generation_and_members() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    desk.later(SESSION_S - 0.1)
    desk.take_over()
    state = desk.group.state
    assert state is GroupState.STABLE
    desk.later(SESSION_S - 0.1)
    assert desk.heartbeat(first, 2) == desk.heartbeat(second, 2) == "ok"
    assert desk.assignment(desk.sync(second)) == second.encode()
    desk.later(SESSION_S)
    assert desk.heartbeat(first, 2) == "UnknownMember"
    assert desk.group.state is GroupState.EMPTY


def test_a_suspended_coordinator_extends_all_deadlines() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    pending = desk.returned_id(desk.join(version=4))
    token = desk.join(first)
    desk.now_s += 100.0
    desk.group.extend_deadlines(100.0, desk.now_s)
    desk.later(SESSION_S - 0.1)
    assert desk.heartbeat(second) == "RebalanceInProgress"
    desk.join(second)
    desk.join(pending, version=4)
    assert len(desk.joined(token).members) == 3


def test_an_administrator_sees_members_and_assignments_of_a_stable_group() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    described = desk.group.describe()
    assert (described.state, described.protocol_type, described.protocol) == (
        GroupState.STABLE,
        "consumer",
        "range",
    )
    assert [(each.member_id, each.assignment) for each in described.members] == [
        (first, first.encode()),
        (second, second.encode()),
    ]
    assert {each.subscription for each in described.members} == {b"range subscription"}
    desk.leave(second)
    described = desk.group.describe()
    assert described.protocol == ""
    assert [(each.subscription, each.assignment) for each in described.members] == [(b"", b"")]


@pytest.mark.parametrize(
    ("generation", "member", "expected"),
    [
        (2, 0, None),
        (1, 0, "IllegalGeneration"),
        (3, 0, "IllegalGeneration"),
        (2, None, "UnknownMember"),
        (-1, None, "UnknownMember"),
        (-1, 0, "IllegalGeneration"),
    ],
)
def test_only_members_of_the_generation_commit(
    generation: int, member: int | None, expected: str | None
) -> None:
    desk = Desk()
    members = desk.stable(2)
    who = MemberIdentity("" if member is None else members[member])
    assert desk.commit(Commit(who, generation)) == expected


def test_members_may_commit_while_they_are_called_to_join_again() -> None:
    desk = Desk()
    first, second = desk.stable(2)
    desk.join(first)
    desk.later(SESSION_S - 0.1)
    assert desk.commit(Commit(MemberIdentity(second), 2)) is None
    # It has been heard of.
    desk.later(SESSION_S - 0.1)
    assert desk.heartbeat(second) == "RebalanceInProgress"


def test_commits_are_rejected_before_the_assignment() -> None:
    desk = Desk()
    member = desk.joined(desk.join()).member_id
    assert desk.commit(Commit(MemberIdentity(member), 1)) == "RebalanceInProgress"


def test_anybody_commits_for_a_group_without_members() -> None:
    desk = Desk()
    assert desk.commit(Commit(MemberIdentity(""), -1)) is None
    assert desk.commit(Commit(MemberIdentity("member"), 0)) == "UnknownMember"
