"""The generations of a consumer group, and the rebalance between them.

A rebalance asks members to join. Once all have joined, or late ones are removed, the generation has
a number, a protocol and a leader. It is stable once the leader's assignment is stored. No member
receives an assignment earlier, so the next coordinator knows the generation of the members.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from logbroker.errors import RebalanceInProgress, RequestRefused
from logbroker.groups.member import Member
from logbroker.groups.member_list import MemberList
from logbroker.groups.messages import (
    NO_MEMBER,
    Answer,
    Effects,
    ErrorResponse,
    Joined,
    Store,
    Synced,
    Token,
)
from logbroker.groups.states import GroupEvent, GroupState, next_state
from logbroker.groups.stored import StoredMembership

NEVER_S: Final = math.inf

_IN_A_GENERATION: Final = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class Generations:
    """The current generation of a group, and its rebalance.

    The owner sets `now_s` before each call. At `phase_end_s`, members that have not joined, or not
    sent SyncGroup, are removed.
    """

    def __init__(self, initial_delay_s: float) -> None:
        self.state = GroupState.EMPTY
        self.number = 0
        self.protocol: str | None = None
        self.member_list = MemberList()
        self.now_s = 0.0
        self.phase_end_s = NEVER_S
        self._initial_delay_s = initial_delay_s
        self._initial_delay_end_s = NEVER_S
        """The latest end of the initial delay, in which an empty group waits for members."""
        self._has_new_members = False
        """Whether a member has joined since the delay was last extended."""
        self._pending_assignment: tuple[int, Mapping[str, bytes]] | None = None
        """The number of the write that stores the assignment, and the assignment."""
        self._pending_replacements: dict[int, tuple[Token, Joined]] = {}
        """Static members that replace one in a stable generation, by number of the write."""
        self._answers: list[tuple[Token, Answer]] = []
        self._stores: list[Store] = []
        self._last_store = 0

    def restore(self, stored: StoredMembership) -> None:
        """Restore a stored membership; all sessions start now."""
        self.number = stored.generation
        self.member_list.protocol_type = stored.protocol_type
        if stored.members:
            self.state = GroupState.STABLE
            self.protocol = stored.protocol
            for member in stored.members:
                self.member_list.add(Member.restored(member, self.now_s))
            self.member_list.leader = stored.leader

    def take_effects(self) -> Effects:
        """Return the effects since the previous call."""
        effects = Effects(tuple(self._answers), tuple(self._stores))
        self._answers.clear()
        self._stores.clear()
        return effects

    def answer(self, token: Token, answer: Answer) -> None:
        """Answer a request at once."""
        self._answers.append((token, answer))

    def add_member(self, member: Member) -> None:
        """Add a member, which waits for the next generation."""
        self.member_list.add(member)
        if self.state is GroupState.EMPTY:
            self._start_initial_delay()
        else:
            self._has_new_members = True
            self.rebalance()

    def remove_members(self, members: list[Member]) -> None:
        """Remove members and rebalance."""
        for member in members:
            self.member_list.remove(member)
        if members:
            self.rebalance()

    def rebalance(self) -> None:
        """Ask all members to join the next generation."""
        if self.state in _IN_A_GENERATION:
            for member in self.member_list:
                self.answer_sync(member, ErrorResponse(RebalanceInProgress("members have changed")))
            self._pending_assignment = None
            self._pending_replacements.clear()
            self._transition(GroupEvent.REBALANCE)
            self.phase_end_s = self.now_s + self.member_list.rebalance_timeout_s
        self.complete_if_all_joined()

    def complete_if_all_joined(self) -> None:
        """Complete a rebalance that waits for no member."""
        is_delayed = self._initial_delay_end_s < NEVER_S
        is_due = self.state is GroupState.PREPARING_REBALANCE and not is_delayed
        if is_due and self.member_list.all_have_joined:
            self._complete_rebalance()

    def end_phase(self) -> None:
        """Remove late members, at `phase_end_s`."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self.phase_end_s = NEVER_S
            self.remove_members([member for member in self.member_list if not member.has_synced])
            return
        left_s = self._initial_delay_end_s - self.now_s
        if self._has_new_members and 0 < left_s < NEVER_S:
            self._has_new_members = False
            self.phase_end_s = self.now_s + min(self._initial_delay_s, left_s)
        else:
            self._complete_rebalance()

    def extend_deadlines(self, gap_s: float) -> None:
        """Extend all deadlines by `gap_s`."""
        self.phase_end_s += gap_s
        self._initial_delay_end_s += gap_s

    def replace_member(self, member: Member, old_leader: str | None) -> None:
        """Replace a static member by its restarted process, without a rebalance.

        The join is answered once the new id is stored.
        """
        answer = self.join_response(member)
        if member.may_skip_assignment:
            answer = replace(answer, skips_assignment=answer.leader == member.member_id)
        else:
            # As the leader it would compute an assignment that no member waits for.
            answer = replace(answer, leader=old_leader or NO_MEMBER, members=())
        number = self._store({each.member_id: each.assignment for each in self.member_list})
        assert member.join_token is not None
        self._pending_replacements[number] = (member.join_token, answer)

    def store_assignment(self, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignment, unless one of this generation is being stored.

        Otherwise a leader that sends two could have one stored and the other one returned.
        """
        if self._pending_assignment is None:
            self._pending_assignment = (self._store(assignments), assignments)

    def complete_write(self, number: int, failure: RequestRefused | None) -> None:
        """Handle the result of write `number`; after a failure its state is unknown."""
        if self._pending_assignment is not None and self._pending_assignment[0] == number:
            self._apply_assignment(self._pending_assignment[1], failure)
        elif number in self._pending_replacements:
            self._confirm_replacement(*self._pending_replacements.pop(number), failure)

    def retire(self, reason: RequestRefused) -> None:
        """End the group, and reject waiting requests with `reason`."""
        self._transition(GroupEvent.RETIRE)
        for member in self.member_list:
            self.reject_member_requests(member, reason)

    def join_response(self, member: Member) -> Joined:
        """Return the JoinGroup response of the current generation for a member."""
        assert self.protocol is not None
        is_leader = self.member_list.leader == member.member_id
        listed = self.member_list if is_leader else ()
        return Joined(
            member_id=member.member_id,
            generation=self.number,
            protocol_type=self.member_list.protocol_type,
            protocol=self.protocol,
            leader=self.member_list.leader or NO_MEMBER,
            members=tuple(each.as_joined(self.protocol) for each in listed),
            skips_assignment=False,
        )

    def sync_response(self, member: Member) -> Synced:
        """Return the SyncGroup response for a member."""
        assert self.protocol is not None
        return Synced(self.member_list.protocol_type, self.protocol, member.assignment)

    def answer_sync(self, member: Member, answer: Answer) -> None:
        """Answer a waiting SyncGroup."""
        if member.sync_token is not None:
            self.answer(member.sync_token, answer)
            member.sync_token = None
            member.last_seen_s = self.now_s

    def reject_member_requests(self, member: Member, reason: RequestRefused) -> None:
        """Reject all waiting requests of a member."""
        self.answer_sync(member, ErrorResponse(reason))
        if member.join_token is not None:
            self.answer(member.join_token, ErrorResponse(reason, member.member_id))
            member.join_token = None
            member.last_seen_s = self.now_s

    def _start_initial_delay(self) -> None:
        """Wait for further members, each of which would otherwise cause a rebalance."""
        self._transition(GroupEvent.REBALANCE)
        self._has_new_members = False
        self.phase_end_s = self.now_s + self._initial_delay_s
        longest_s = max(self._initial_delay_s, self.member_list.rebalance_timeout_s)
        self._initial_delay_end_s = self.now_s + longest_s
        if self._initial_delay_s == 0:
            self._complete_rebalance()

    def _complete_rebalance(self) -> None:
        self._initial_delay_end_s = NEVER_S
        for member in self.member_list:
            # A static member stays until its session expires: it may be restarting.
            if member.join_token is None and member.instance_id is None:
                self.member_list.remove(member)
        leader = self.member_list.elect_leader()
        if leader is None and self.member_list:
            self.phase_end_s = min(member.expires_s for member in self.member_list)
            return
        self.number += 1
        if leader is None:
            self.protocol = None
            self.phase_end_s = NEVER_S
            self._transition(GroupEvent.ALL_LEFT)
            self._store({})
            return
        self.protocol = self.member_list.choose_protocol()
        self.phase_end_s = self.now_s + self.member_list.rebalance_timeout_s
        self._transition(GroupEvent.ALL_JOINED)
        for member in self.member_list:
            member.has_synced = member.join_token is None
            if member.join_token is not None:
                self._answer_join(member, self.join_response(member))

    def _apply_assignment(
        self, assignments: Mapping[str, bytes], failure: RequestRefused | None
    ) -> None:
        self._pending_assignment = None
        if failure is not None:
            for member in self.member_list:
                self.answer_sync(member, ErrorResponse(failure))
            self.rebalance()
            return
        self._transition(GroupEvent.ASSIGNED)
        for member in self.member_list:
            member.assignment = assignments.get(member.member_id, b"")
            self.answer_sync(member, self.sync_response(member))

    def _confirm_replacement(
        self, token: Token, answer: Joined, failure: RequestRefused | None
    ) -> None:
        member = self.member_list.find_waiting(token)
        if member is None:
            return  # it was replaced as well, or has left
        if failure is None:
            self._answer_join(member, answer)
        else:
            self.reject_member_requests(member, failure)
            self.rebalance()

    def _answer_join(self, member: Member, answer: Joined) -> None:
        assert member.join_token is not None
        self.answer(member.join_token, answer)
        member.join_token = None
        member.knows_its_id = True
        member.last_seen_s = self.now_s

    def _store(self, assignments: Mapping[str, bytes]) -> int:
        self._last_store += 1
        membership = StoredMembership(
            generation=self.number,
            protocol_type=self.member_list.protocol_type,
            protocol=self.protocol,
            leader=self.member_list.leader,
            members=tuple(
                member.as_stored(assignments.get(member.member_id, b""))
                for member in self.member_list
            ),
        )
        self._stores.append(Store(self._last_store, membership))
        return self._last_store

    def _transition(self, event: GroupEvent) -> None:
        self.state = next_state(self.state, event)
