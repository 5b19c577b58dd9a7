"""Joining, leaving and being silent, as Kafka's classic groups have it."""

from dataclasses import replace
from typing import Any

import pytest

from logbroker.errors import NotCoordinator, RegistryUnavailable
from logbroker.groups.messages import Commit, ErrorResponse, MemberIdentity
from logbroker.groups.states import GroupState
from tests.unit.logbroker.groups.group_harness import LIMITS, REBALANCE_S, SESSION_S, GroupHarness

RANGE_AND_STICKY = (("range", b"r"), ("sticky", b"s"))
STICKY_AND_RANGE = (("sticky", b"s"), ("range", b"r"))


def test_a_lone_member_leads_and_gets_what_it_assigns() -> None:
    harness = GroupHarness()
    joined = harness.joined(harness.join())
    assert (joined.generation, joined.protocol, joined.protocol_type) == (1, "range", "consumer")
    assert joined.leader == joined.member_id
    assert [(each.member_id, each.subscription) for each in joined.members] == [
        (joined.member_id, b"range subscription")
    ]
    token = harness.sync(joined.member_id, assignments={joined.member_id: b"everything"})
    assert harness.is_waiting(token)
    harness.store()
    assert harness.assignment(token) == b"everything"
    assert harness.group.state is GroupState.STABLE
    assert harness.heartbeat(joined.member_id) == "ok"


def test_an_assignment_is_returned_only_after_it_is_stored() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    follower = harness.join(second, protocols=(("range", b"changed"),))
    leader = harness.join(first)
    assert harness.joined(follower).generation == harness.joined(leader).generation == 3
    tokens = [harness.sync(second), harness.sync(first, assignments={first: b"1", second: b"2"})]
    assert all(map(harness.is_waiting, tokens))
    assert harness.unwritten[0].membership.generation == 3
    harness.store()
    assert [harness.assignment(token) for token in tokens] == [b"2", b"1"]


def test_only_the_leader_receives_the_member_list() -> None:
    harness = GroupHarness()
    leader, _, _ = harness.stable(3)
    tokens = [harness.join(member) for member in harness.members]
    answers = [harness.joined(token) for token in tokens]
    assert [len(answer.members) for answer in answers] == [3, 0, 0]
    assert {answer.leader for answer in answers} == {leader}


def test_a_member_the_leader_forgets_gets_nothing() -> None:
    harness = GroupHarness()
    member = harness.joined(harness.join()).member_id
    token = harness.sync(member, assignments={"somebody else": b"everything"})
    harness.store()
    assert harness.assignment(token) == b""
    assert [each.member_id for each in harness.durable_members] == [member]


def test_members_wait_for_all_the_others_to_join_again() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    third = harness.join()
    assert harness.heartbeat(first) == harness.heartbeat(second) == "RebalanceInProgress"
    again = harness.join(first)
    assert harness.is_waiting(third)
    assert harness.is_waiting(again)
    harness.join(second)
    assert harness.joined(third).generation == harness.joined(again).generation == 3


def test_who_does_not_join_again_is_dropped_when_the_rebalance_times_out() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    token = harness.join(first)
    for _ in range(5):
        assert harness.heartbeat(second) == "RebalanceInProgress"
        harness.later(REBALANCE_S / 6)
    assert harness.is_waiting(token)
    harness.later(REBALANCE_S / 6)
    assert harness.joined(token).members[0].member_id == first
    assert harness.heartbeat(second) == "UnknownMember"


def test_the_longest_rebalance_timeout_of_all_members_counts() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1, session_timeout_ms=60_000, rebalance_timeout_ms=1_000)
    patient = harness.join(rebalance_timeout_ms=50_000)
    harness.later(49.9)
    assert harness.is_waiting(patient)
    harness.later(0.1)
    assert harness.joined(patient).generation == 2
    assert harness.heartbeat(first) == "UnknownMember"


def test_without_a_rebalance_timeout_the_session_timeout_counts() -> None:
    # JoinGroup v0 has none, and 0 would drop everybody for ever.
    harness = GroupHarness()
    harness.stable(1, rebalance_timeout_ms=-1)
    token = harness.join(rebalance_timeout_ms=-1)
    harness.later(SESSION_S - 0.1)
    assert harness.is_waiting(token)
    harness.later(0.1)
    assert harness.joined(token).generation == 2


def test_an_expired_member_is_removed_and_the_others_rebalance() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.later(SESSION_S - 0.1)
    assert harness.heartbeat(first) == "ok"
    harness.later(0.1)
    assert harness.heartbeat(first) == "RebalanceInProgress"
    assert harness.heartbeat(second) == "UnknownMember"


def test_a_member_that_waits_does_not_expire() -> None:
    harness = GroupHarness()
    first, _ = harness.stable(2, rebalance_timeout_ms=50_000)
    token = harness.join(first, rebalance_timeout_ms=50_000)
    # Its companion's session ends; its own would have, too.
    harness.later(SESSION_S)
    assert harness.joined(token).generation == 3
    waiting = harness.sync(first, assignments={first: b"all"})
    harness.later(5 * SESSION_S)
    harness.store()
    assert harness.assignment(waiting) == b"all"
    harness.later(SESSION_S - 0.1)
    assert harness.heartbeat(first) == "ok"


def test_a_leader_that_dies_before_it_assigns_is_replaced() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.join(second, protocols=(("range", b"changed"),))
    harness.join(first)
    token = harness.sync(second)
    harness.later(SESSION_S)
    assert harness.error_name(token) == "RebalanceInProgress"
    assert harness.joined(harness.join(second)).leader == second


def test_who_joins_and_never_syncs_is_dropped_when_the_rebalance_times_out() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.join(second, protocols=(("range", b"changed"),))
    harness.join(first)
    harness.sync(first, assignments={first: b"1", second: b"2"})
    harness.store()
    for _ in range(6):
        assert harness.heartbeat(second) == harness.heartbeat(first) == "ok"
        harness.later(REBALANCE_S / 6)
    assert harness.heartbeat(second) == "UnknownMember"
    assert harness.heartbeat(first) == "RebalanceInProgress"


def test_a_leaving_member_is_removed_immediately() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    assert harness.leave(second, "unknown", second) == ["ok", "UnknownMember", "UnknownMember"]
    assert harness.joined(harness.join(first)).generation == 3
    assert harness.heartbeat(second, 2) == "UnknownMember"


def test_a_waiting_request_of_a_leaving_member_is_rejected() -> None:
    harness = GroupHarness()
    first, _ = harness.stable(2)
    token = harness.join(first)
    assert harness.leave(first) == ["ok"]
    assert harness.error_name(token) == "UnknownMember"


def test_a_group_that_everybody_left_keeps_its_generation() -> None:
    harness = GroupHarness()
    (member,) = harness.stable(1)
    assert harness.leave(member) == ["ok"]
    assert harness.group.state is GroupState.EMPTY
    harness.store()
    assert harness.durable is not None
    assert (harness.durable.generation, harness.durable.members) == (2, ())
    harness.take_over()
    assert not harness.group.has_no_state
    assert harness.joined(harness.join()).generation == 3


def test_the_group_waits_a_little_for_its_first_members() -> None:
    harness = GroupHarness(replace(LIMITS, initial_rebalance_delay_s=3.0))
    first = harness.join()
    harness.later(2.9)
    second = harness.join()
    harness.later(0.1)
    # One came, so it waits again; none comes now.
    assert harness.is_waiting(first)
    harness.later(2.9)
    assert harness.is_waiting(second)
    harness.later(0.1)
    assert len(harness.joined(first).members) == 2
    assert harness.joined(second).generation == 1


def test_the_group_does_not_wait_for_its_first_members_for_ever() -> None:
    harness = GroupHarness(replace(LIMITS, initial_rebalance_delay_s=3.0))
    tokens = [harness.join(rebalance_timeout_ms=7_000)]
    for _ in range(3):
        harness.later(2.0)
        tokens.append(harness.join(rebalance_timeout_ms=7_000))
    assert all(map(harness.is_waiting, tokens))
    harness.later(1.0)
    assert len(harness.joined(tokens[0]).members) == 4


def test_a_lone_first_member_waits_once() -> None:
    harness = GroupHarness(replace(LIMITS, initial_rebalance_delay_s=3.0))
    token = harness.join()
    harness.later(3.0)
    assert harness.joined(token).generation == 1


def test_a_new_member_is_given_its_id_first_from_v4_on() -> None:
    harness = GroupHarness()
    token = harness.join(version=4)
    assert harness.error_name(token) == "MemberIdRequired"
    member_id = harness.returned_id(token)
    assert harness.group.state is GroupState.EMPTY
    assert harness.heartbeat(member_id) == "UnknownMember"
    assert harness.joined(harness.join(member_id, version=4)).member_id == member_id


@pytest.mark.parametrize("version", [0, 3])
def test_an_older_client_is_not_asked_to_come_twice(version: int) -> None:
    harness = GroupHarness()
    assert harness.joined(harness.join(version=version)).generation == 1


def test_a_static_member_is_not_asked_to_come_twice() -> None:
    harness = GroupHarness()
    assert harness.joined(harness.join(version=5, instance_id="one")).generation == 1


def test_an_id_that_is_not_used_is_forgotten_after_the_session_timeout() -> None:
    harness = GroupHarness()
    member_id = harness.returned_id(harness.join(version=4))
    assert not harness.group.has_no_state
    harness.later(SESSION_S)
    assert harness.group.has_no_state
    assert harness.error_name(harness.join(member_id, version=4)) == "UnknownMember"


def test_a_rebalance_waits_for_those_who_have_just_got_their_id() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1)
    member_id = harness.returned_id(harness.join(version=4))
    token = harness.join(first, protocols=(("range", b"changed"),))
    assert harness.is_waiting(token)
    other = harness.join(member_id, version=4)
    assert harness.joined(token).generation == harness.joined(other).generation == 2


def test_a_returned_id_does_not_delay_the_rebalance() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1)
    member_id = harness.returned_id(harness.join(version=4))
    token = harness.join(first, protocols=(("range", b"changed"),))
    assert harness.leave(member_id) == ["ok"]
    assert harness.joined(token).generation == 2


def test_a_returned_id_does_not_affect_other_members() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1)
    assert harness.leave(harness.returned_id(harness.join(version=4))) == ["ok"]
    assert harness.heartbeat(first) == "ok"


def test_a_follower_that_rejoins_unchanged_causes_no_rebalance() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    answer = harness.joined(harness.join(second))
    assert (answer.generation, answer.leader, answer.members) == (2, first, ())
    assert harness.assignment(harness.sync(second)) == second.encode()
    assert harness.heartbeat(first) == "ok"


def test_a_leader_that_rejoins_starts_a_rebalance() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    token = harness.join(first)
    assert harness.heartbeat(second) == "RebalanceInProgress"
    harness.join(second)
    assert harness.joined(token).generation == 3


def test_who_has_not_heard_the_answer_to_its_join_hears_it_again() -> None:
    harness = GroupHarness()
    first = harness.joined(harness.join())
    assert harness.joined(harness.join(first.member_id)) == first


def test_a_second_request_of_a_member_supersedes_the_first() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    joins = [harness.join(first), harness.join(first)]
    assert harness.error_name(joins[0]) == "RebalanceInProgress"
    harness.join(second)
    assert harness.joined(joins[1]).generation == 3
    syncs = [harness.sync(second), harness.sync(second)]
    assert harness.error_name(syncs[0]) == "RebalanceInProgress"


def test_a_leader_cannot_change_its_mind_while_its_assignment_is_stored() -> None:
    harness = GroupHarness()
    member = harness.joined(harness.join()).member_id
    harness.sync(member, assignments={member: b"first"})
    token = harness.sync(member, assignments={member: b"second"})
    assert len(harness.unwritten) == 1
    harness.store()
    assert harness.assignment(token) == b"first"


def test_the_protocol_is_one_that_all_know_and_most_prefer() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1, protocols=RANGE_AND_STICKY)
    harness.join(protocols=STICKY_AND_RANGE)
    third = harness.join(protocols=(("other", b""), *STICKY_AND_RANGE))
    token = harness.join(first, protocols=RANGE_AND_STICKY)
    assert harness.joined(token).protocol == harness.joined(third).protocol == "sticky"
    assert [each.subscription for each in harness.joined(token).members] == [b"s", b"s", b"s"]


@pytest.mark.parametrize(
    "incompatible",
    [
        {"protocols": (("sticky", b""),)},
        {"protocols": ()},
        {"protocol_type": "connect"},
        {"protocol_type": ""},
    ],
)
def test_a_member_without_common_protocol_is_rejected(incompatible: dict[str, Any]) -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1)
    assert harness.error_name(harness.join(**incompatible)) == "InconsistentGroupProtocol"
    assert harness.heartbeat(first) == "ok"


def test_a_lone_member_may_come_back_with_another_protocol() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1)
    token = harness.join(first, protocols=(("sticky", b""),))
    assert harness.joined(token).protocol == "sticky"


def test_an_empty_group_takes_any_protocol_but_none() -> None:
    harness = GroupHarness()
    assert harness.error_name(harness.join(protocols=())) == "InconsistentGroupProtocol"
    assert harness.error_name(harness.join(protocol_type="")) == "InconsistentGroupProtocol"
    assert harness.group.has_no_state


@pytest.mark.parametrize("timeout_ms", [999, 60_001, 0, -1])
def test_a_session_timeout_out_of_range_is_rejected(timeout_ms: int) -> None:
    harness = GroupHarness()
    token = harness.join(session_timeout_ms=timeout_ms)
    assert harness.error_name(token) == "InvalidSessionTimeout"


def test_a_full_group_accepts_only_its_members() -> None:
    harness = GroupHarness()
    first, *_ = harness.stable(3)
    pending = harness.returned_id(harness.join(version=4))
    assert harness.error_name(harness.join()) == "GroupTooLarge"
    assert harness.error_name(harness.join(version=4)) == "GroupTooLarge"
    assert harness.is_waiting(harness.join(pending, version=4))
    assert harness.is_waiting(harness.join(first))


def test_subscriptions_that_would_not_fit_what_is_stored_are_refused() -> None:
    harness = GroupHarness()
    large = (("range", b"." * 150_000),)
    for _ in range(2):
        harness.join(protocols=large)
    assert harness.error_name(harness.join(protocols=large)) == "GroupTooLarge"
    assert (
        harness.error_name(harness.join(protocols=(("range", b"." * 400_001),))) == "GroupTooLarge"
    )
    # A member that joins again counts once.
    member_id = harness.group.describe().members[0].member_id
    again = harness.join(member_id, protocols=(("range", b"." * 250_000),))
    assert not isinstance(harness.answers.get(again), ErrorResponse)


@pytest.mark.parametrize("member_id", ["unknown", "member-1"])
def test_an_empty_group_has_no_members(member_id: str) -> None:
    harness = GroupHarness()
    assert harness.error_name(harness.join(member_id)) == "UnknownMember"
    assert harness.error_name(harness.sync(member_id)) == "UnknownMember"
    assert harness.heartbeat(member_id) == "UnknownMember"
    assert harness.leave(member_id) == ["UnknownMember"]
    assert harness.group.has_no_state


def test_another_generation_is_rejected() -> None:
    harness = GroupHarness()
    first, _ = harness.stable(2)
    for generation in (1, 3, -1):
        assert harness.heartbeat(first, generation) == "IllegalGeneration"
        assert harness.error_name(harness.sync(first, generation)) == "IllegalGeneration"


def test_another_protocol_than_the_chosen_is_refused() -> None:
    harness = GroupHarness()
    (first,) = harness.stable(1)
    assert harness.error_name(harness.sync(first, protocol="sticky")) == "InconsistentGroupProtocol"
    assert harness.assignment(harness.sync(first, protocol="range")) == first.encode()


def test_no_assignment_is_returned_during_a_rebalance() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.leave(second)
    assert harness.error_name(harness.sync(first)) == "RebalanceInProgress"


def test_a_failed_write_is_reported_and_causes_a_rebalance() -> None:
    harness = GroupHarness()
    member = harness.joined(harness.join()).member_id
    token = harness.sync(member, assignments={member: b"lost"})
    harness.store(RegistryUnavailable("gone"))
    assert harness.error_name(token) == "RegistryUnavailable"
    assert harness.heartbeat(member) == "RebalanceInProgress"
    assert harness.joined(harness.join(member)).generation == 2


def test_a_write_that_ends_too_late_changes_nothing() -> None:
    harness = GroupHarness()
    member = harness.joined(harness.join()).member_id
    token = harness.sync(member, assignments={member: b"old"})
    newcomer = harness.join()
    assert harness.error_name(token) == "RebalanceInProgress"
    harness.join(member)
    assert harness.joined(newcomer).generation == 2
    harness.store()
    assert harness.group.state is GroupState.COMPLETING_REBALANCE


def test_a_new_member_whose_connection_closes_is_forgotten() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    newcomer = harness.join()
    token = harness.join(first)
    harness.abandon(newcomer)
    harness.join(second)
    assert len(harness.joined(token).members) == 2
    assert harness.is_waiting(newcomer)


def test_a_known_member_whose_connection_closes_may_come_back_within_its_session() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    lost = harness.join(second, protocols=(("range", b"changed"),))
    harness.abandon(lost)
    token = harness.join(first)
    assert harness.is_waiting(token)
    harness.later(SESSION_S - 0.1)
    harness.join(second)
    assert len(harness.joined(token).members) == 2


def test_a_known_member_whose_connection_closes_expires() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.abandon(harness.join(second, protocols=(("range", b"changed"),)))
    token = harness.join(first)
    harness.later(SESSION_S)
    assert len(harness.joined(token).members) == 1


def test_waiting_requests_are_rejected_when_the_coordinator_moves() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    tokens = [harness.join(second, protocols=(("range", b"changed"),)), harness.join()]
    harness.retire(NotCoordinator("moved"))
    assert [harness.error_name(token) for token in tokens] == ["NotCoordinator", "NotCoordinator"]
    assert harness.group.state is GroupState.DEAD
    assert first not in harness.answers


def test_the_next_coordinator_keeps_generation_and_members() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.later(SESSION_S - 0.1)
    harness.take_over()
    state = harness.group.state
    assert state is GroupState.STABLE
    harness.later(SESSION_S - 0.1)
    assert harness.heartbeat(first, 2) == harness.heartbeat(second, 2) == "ok"
    assert harness.assignment(harness.sync(second)) == second.encode()
    harness.later(SESSION_S)
    assert harness.heartbeat(first, 2) == "UnknownMember"
    assert harness.group.state is GroupState.EMPTY


def test_a_suspended_coordinator_extends_all_deadlines() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    pending = harness.returned_id(harness.join(version=4))
    token = harness.join(first)
    harness.now_s += 100.0
    harness.group.extend_deadlines(100.0, harness.now_s)
    harness.later(SESSION_S - 0.1)
    assert harness.heartbeat(second) == "RebalanceInProgress"
    harness.join(second)
    harness.join(pending, version=4)
    assert len(harness.joined(token).members) == 3


def test_an_administrator_sees_members_and_assignments_of_a_stable_group() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    described = harness.group.describe()
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
    harness.leave(second)
    described = harness.group.describe()
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
    harness = GroupHarness()
    members = harness.stable(2)
    who = MemberIdentity("" if member is None else members[member])
    assert harness.commit(Commit(who, generation)) == expected


def test_members_may_commit_while_they_are_called_to_join_again() -> None:
    harness = GroupHarness()
    first, second = harness.stable(2)
    harness.join(first)
    harness.later(SESSION_S - 0.1)
    assert harness.commit(Commit(MemberIdentity(second), 2)) is None
    # It has been heard of.
    harness.later(SESSION_S - 0.1)
    assert harness.heartbeat(second) == "RebalanceInProgress"


def test_commits_are_rejected_before_the_assignment() -> None:
    harness = GroupHarness()
    member = harness.joined(harness.join()).member_id
    assert harness.commit(Commit(MemberIdentity(member), 1)) == "RebalanceInProgress"


def test_anybody_commits_for_a_group_without_members() -> None:
    harness = GroupHarness()
    assert harness.commit(Commit(MemberIdentity(""), -1)) is None
    assert harness.commit(Commit(MemberIdentity("member"), 0)) == "UnknownMember"
