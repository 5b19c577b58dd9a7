"""How a consumer group gets from one generation to the next.

Members are called to join; once all are back, or those who are not are dropped, the generation
has a number, a protocol and a leader. It is stable once the leader's assignment is stored: an
assignment is told to nobody before, so whoever coordinates the group next goes on with the
generation that its members know.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from logbroker.errors import RebalanceInProgress, RequestRefused
from logbroker.groups.exchanges import (
    NO_MEMBER,
    Answer,
    Effects,
    ErrorResponse,
    Joined,
    Store,
    Synced,
    Token,
)
from logbroker.groups.member import Member
from logbroker.groups.roster import Roster
from logbroker.groups.states import GroupEvent, GroupState, next_state
from logbroker.groups.stored import StoredMembership

NEVER_S: Final = math.inf

_IN_A_GENERATION: Final = (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)


class Generations:
    """The present generation of a group, and the way to the next.

    `now_s` is set by the owner before each call. `phase_end_s` is when those who have not
    joined, or not sent their SyncGroup, are dropped.
    """

    def __init__(self, initial_delay_s: float) -> None:
        self.state = GroupState.EMPTY
        self.number = 0
        self.protocol: str | None = None
        self.roster = Roster()
        self.now_s = 0.0
        self.phase_end_s = NEVER_S
        self._initial_delay_s = initial_delay_s
        self._gathering_end_s = NEVER_S
        """While a group that was empty waits for its first members: the latest end of that."""
        self._is_growing = False
        """Whether a member has come since that wait was last prolonged."""
        self._proposal: tuple[int, Mapping[str, bytes]] | None = None
        """The assignment that is being stored, and the number of its write."""
        self._replaced: dict[int, tuple[Token, Joined]] = {}
        """Static members that take a place in a stable generation, by the number of its write."""
        self._answers: list[tuple[Token, Answer]] = []
        self._stores: list[Store] = []
        self._last_store = 0

    def restore(self, stored: StoredMembership) -> None:
        """Go on with what another coordinator has stored; sessions begin anew."""
        self.number = stored.generation
        self.roster.protocol_type = stored.protocol_type
        if stored.members:
            self.state = GroupState.STABLE
            self.protocol = stored.protocol
            for member in stored.members:
                self.roster.add(Member.restored(member, self.now_s))
            self.roster.leader = stored.leader

    def take_effects(self) -> Effects:
        """What has come of the calls since the last one of this."""
        effects = Effects(tuple(self._answers), tuple(self._stores))
        self._answers.clear()
        self._stores.clear()
        return effects

    def answer(self, token: Token, answer: Answer) -> None:
        """Answer a request that does not wait."""
        self._answers.append((token, answer))

    def add(self, member: Member) -> None:
        """Take in a new member, which waits for the next generation."""
        self.roster.add(member)
        if self.state is GroupState.EMPTY:
            self._gather()
        else:
            self._is_growing = True
            self.rebalance()

    def remove(self, members: list[Member]) -> None:
        """Let members go, and have the others share what they had."""
        for member in members:
            self.roster.remove(member)
        if members:
            self.rebalance()

    def rebalance(self) -> None:
        """Call everybody to join the next generation."""
        if self.state in _IN_A_GENERATION:
            for member in self.roster:
                self.answer_sync(member, ErrorResponse(RebalanceInProgress("members have changed")))
            self._proposal = None
            self._replaced.clear()
            self._move(GroupEvent.REBALANCE)
            self.phase_end_s = self.now_s + self.roster.rebalance_timeout_s
        self.complete_if_all_are_back()

    def complete_if_all_are_back(self) -> None:
        """Form the next generation if it is being prepared and nobody is missing."""
        is_gathering = self._gathering_end_s < NEVER_S
        is_due = self.state is GroupState.PREPARING_REBALANCE and not is_gathering
        if is_due and self.roster.all_have_joined:
            self._complete()

    def end_phase(self) -> None:
        """Drop those who are late; `phase_end_s` has come."""
        if self.state is not GroupState.PREPARING_REBALANCE:
            self.phase_end_s = NEVER_S
            self.remove([member for member in self.roster if not member.has_synced])
            return
        left_s = self._gathering_end_s - self.now_s
        if self._is_growing and 0 < left_s < NEVER_S:
            self._is_growing = False
            self.phase_end_s = self.now_s + min(self._initial_delay_s, left_s)
        else:
            self._complete()

    def postpone(self, gap_s: float) -> None:
        """Move the ends of all waiting by `gap_s`."""
        self.phase_end_s += gap_s
        self._gathering_end_s += gap_s

    def replace(self, member: Member, old_leader: str | None) -> None:
        """Have a static member that joins under a new id, and changes nothing, go on in its place.

        It is answered once its new id is stored.
        """
        answer = self.joined(member)
        if member.may_skip_assignment:
            answer = replace(answer, skips_assignment=answer.leader == member.member_id)
        else:
            # Told that it leads, it would make an assignment that nobody waits for.
            answer = replace(answer, leader=old_leader or NO_MEMBER, members=())
        number = self._store({each.member_id: each.assignment for each in self.roster})
        assert member.join_token is not None
        self._replaced[number] = (member.join_token, answer)

    def propose(self, assignments: Mapping[str, bytes]) -> None:
        """Store the leader's assignment, unless one of this generation is being stored.

        A leader that asks twice could else have one assignment told and the other one kept.
        """
        if self._proposal is None:
            self._proposal = (self._store(assignments), assignments)

    def stored(self, number: int, failure: RequestRefused | None) -> None:
        """Write `number` is durable, or has failed, and then may have been made or not."""
        if self._proposal is not None and self._proposal[0] == number:
            self._assign(self._proposal[1], failure)
        elif number in self._replaced:
            self._confirm_replacement(*self._replaced.pop(number), failure)

    def retire(self, reason: RequestRefused) -> None:
        """End here: who waits is told `reason`."""
        self._move(GroupEvent.RETIRE)
        for member in self.roster:
            self.answer_waiting(member, reason)

    def joined(self, member: Member) -> Joined:
        """What a member is told of the present generation."""
        assert self.protocol is not None
        is_leader = self.roster.leader == member.member_id
        told = self.roster if is_leader else ()
        return Joined(
            member_id=member.member_id,
            generation=self.number,
            protocol_type=self.roster.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader or NO_MEMBER,
            members=tuple(each.as_joined(self.protocol) for each in told),
            skips_assignment=False,
        )

    def synced(self, member: Member) -> Synced:
        """What a member is told of its assignment."""
        assert self.protocol is not None
        return Synced(self.roster.protocol_type, self.protocol, member.assignment)

    def answer_sync(self, member: Member, answer: Answer) -> None:
        """Answer a SyncGroup, if one waits."""
        if member.sync_token is not None:
            self.answer(member.sync_token, answer)
            member.sync_token = None
            member.heard_s = self.now_s

    def answer_waiting(self, member: Member, reason: RequestRefused) -> None:
        """Refuse whatever waits of a member."""
        self.answer_sync(member, ErrorResponse(reason))
        if member.join_token is not None:
            self.answer(member.join_token, ErrorResponse(reason, member.member_id))
            member.join_token = None
            member.heard_s = self.now_s

    def _gather(self) -> None:
        """Give the first member's companions a little time, or each would cost a rebalance."""
        self._move(GroupEvent.REBALANCE)
        self._is_growing = False
        self.phase_end_s = self.now_s + self._initial_delay_s
        longest_s = max(self._initial_delay_s, self.roster.rebalance_timeout_s)
        self._gathering_end_s = self.now_s + longest_s
        if self._initial_delay_s == 0:
            self._complete()

    def _complete(self) -> None:
        self._gathering_end_s = NEVER_S
        for member in self.roster:
            # A static member keeps its place until its session ends: it may be starting anew.
            if member.join_token is None and member.instance_id is None:
                self.roster.remove(member)
        leader = self.roster.elect_leader()
        if leader is None and self.roster:
            self.phase_end_s = min(member.expires_s for member in self.roster)
            return
        self.number += 1
        if leader is None:
            self.protocol = None
            self.phase_end_s = NEVER_S
            self._move(GroupEvent.ALL_ARE_GONE)
            self._store({})
            return
        self.protocol = self.roster.choose_protocol()
        self.phase_end_s = self.now_s + self.roster.rebalance_timeout_s
        self._move(GroupEvent.ALL_ARE_BACK)
        for member in self.roster:
            member.has_synced = member.join_token is None
            if member.join_token is not None:
                self._answer_join(member, self.joined(member))

    def _assign(self, assignments: Mapping[str, bytes], failure: RequestRefused | None) -> None:
        self._proposal = None
        if failure is not None:
            for member in self.roster:
                self.answer_sync(member, ErrorResponse(failure))
            self.rebalance()
            return
        self._move(GroupEvent.ASSIGNED)
        for member in self.roster:
            member.assignment = assignments.get(member.member_id, b"")
            self.answer_sync(member, self.synced(member))

    def _confirm_replacement(
        self, token: Token, answer: Joined, failure: RequestRefused | None
    ) -> None:
        member = self.roster.waiting(token)
        if member is None:
            return  # it has been replaced in its turn, or has left
        if failure is None:
            self._answer_join(member, answer)
        else:
            self.answer_waiting(member, failure)
            self.rebalance()

    def _answer_join(self, member: Member, answer: Joined) -> None:
        assert member.join_token is not None
        self.answer(member.join_token, answer)
        member.join_token = None
        member.knows_its_id = True
        member.heard_s = self.now_s

    def _store(self, assignments: Mapping[str, bytes]) -> int:
        self._last_store += 1
        membership = StoredMembership(
            generation=self.number,
            protocol_type=self.roster.protocol_type,
            protocol=self.protocol,
            leader=self.roster.leader,
            members=tuple(
                member.as_stored(assignments.get(member.member_id, b"")) for member in self.roster
            ),
        )
        self._stores.append(Store(self._last_store, membership))
        return self._last_store

    def _move(self, event: GroupEvent) -> None:
        self.state = next_state(self.state, event)
