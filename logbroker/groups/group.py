"""One consumer group: what its members ask, and when they have been silent for too long.

A state machine without clock, storage or socket. Requests come in with the time and a token;
out come answers for tokens (of this request, or of others that waited), and memberships to be
written down.

Source: Kafka's classic consumer groups; KIP-345 (static members), KIP-394 (member ids first),
KIP-814 (static leaders that join again).
"""

from typing import Final, assert_never

from logbroker.errors import (
    FencedInstance,
    GroupTooLarge,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    RebalanceInProgress,
    RequestRefused,
    UnknownMember,
)
from logbroker.groups.exchanges import (
    NO_MEMBER,
    Alive,
    Answer,
    Commit,
    DescribedGroup,
    DescribedMember,
    Effects,
    ErrorResponse,
    GroupLimits,
    Heartbeat,
    Join,
    Leave,
    Left,
    MemberIdentity,
    Protocols,
    Request,
    Sync,
    Token,
)
from logbroker.groups.generations import NEVER_S, Generations
from logbroker.groups.member import CONSUMER, Member, subscribed_topics
from logbroker.groups.states import GroupState
from logbroker.groups.stored import StoredMembership

SUBSCRIBED_BYTES_MAX: Final = 400_000
"""What all members' subscriptions may have together: with assignments as long as half of that again
a generation still fits the one piece in which it is stored, as base64 in some 900 KB."""


class Group:
    """A group as its one coordinator has it; `now_s` is always of the same monotonic clock.

    `check_s` is a time before which no `tick` is needed.
    """

    def __init__(self, limits: GroupLimits) -> None:
        self.check_s = NEVER_S
        self._limits = limits
        self._generations = Generations(limits.initial_rebalance_delay_s)
        self._roster = self._generations.roster

    @classmethod
    def restored(cls, limits: GroupLimits, stored: StoredMembership, now_s: float) -> "Group":
        """A group that another coordinator has stored; its members' sessions begin anew."""
        group = cls(limits)
        group._generations.now_s = now_s
        group._generations.restore(stored)
        group._find_check()
        return group

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        return self._generations.state

    @property
    def generation(self) -> int:
        """The number of the present generation, or of the last one; 0 before the first."""
        return self._generations.number

    @property
    def is_forgettable(self) -> bool:
        """Whether it holds nothing that a new group of this name would not have."""
        return not (self._roster or self._roster.pending or self.generation)

    def handle(self, request: Request, now_s: float) -> Effects:
        """What follows from a request; its own answer may come later."""
        self._generations.now_s = now_s
        match request:
            case Heartbeat():
                # The one request that is frequent, and makes nothing due earlier.
                return Effects(((request.token, self._heartbeat(request)),), ())
            case Join():
                self._join(request)
            case Sync():
                self._sync(request)
            case Leave():
                self._leave(request)
            case _:
                assert_never(request)
        return self._take_effects()

    def commit_refusal(self, commit: Commit, now_s: float) -> RequestRefused | None:
        """Why offsets may not be committed by this one; none where they may."""
        if commit.generation < 0 and self.state is GroupState.EMPTY:
            return None
        refusal = self._refusal(commit.identity, commit.generation)
        if refusal is not None:
            return refusal
        if self.state is GroupState.COMPLETING_REBALANCE:
            return RebalanceInProgress("the generation has no assignment yet")
        # Called to join again, members may still commit what they have worked off.
        self._roster[commit.identity.member_id].heard_s = now_s
        return None

    def stored(self, number: int, failure: RequestRefused | None, now_s: float) -> Effects:
        """Go on, now that write `number` is durable, or has failed and may be there or not."""
        self._generations.now_s = now_s
        self._generations.stored(number, failure)
        return self._take_effects()

    def tick(self, now_s: float) -> Effects:
        """Drop whom nothing was heard of for too long."""
        self._generations.now_s = now_s
        self._expire_sessions(now_s)
        if self._generations.phase_end_s <= now_s:
            self._generations.end_phase()
        return self._take_effects()

    def abandon(self, token: Token, now_s: float) -> Effects:
        """Expect no one to hear the answer for `token`: its connection is closed.

        The member may come back with the id it was told; one that was told none cannot.
        """
        self._generations.now_s = now_s
        member = self._roster.waiting(token)
        if member is not None:
            member.join_token = member.sync_token = None
            member.heard_s = now_s
            if member.is_unreachable:
                self._generations.remove([member])
        return self._take_effects()

    def postpone(self, gap_s: float, now_s: float) -> None:
        """Go on after `gap_s` in which no request was taken: nobody is late for that."""
        for member in self._roster:
            member.heard_s = now_s
        pending = self._roster.pending
        pending.update({each: expires_s + gap_s for each, expires_s in pending.items()})
        self._generations.postpone(gap_s)
        self._find_check()

    def turn_away(self, reason: RequestRefused, now_s: float) -> Effects:
        """Have nobody wait: who does is told `reason`, and may come back."""
        self._generations.now_s = now_s
        for member in self._roster:
            self._generations.answer_waiting(member, reason)
        self._generations.remove([each for each in self._roster if each.is_unreachable])
        return self._take_effects()

    def forget_generation(self) -> None:
        """Begin at 0 again, if there are no members: nothing is stored of the group any more."""
        if self.state is GroupState.EMPTY:
            self._generations.number = 0

    def retire(self, reason: RequestRefused) -> Effects:
        """End the group here: who waits is told `reason`."""
        self._generations.retire(reason)
        return self._take_effects()

    @property
    def members(self) -> int:
        """How many members there are, those included who have yet to join again."""
        return len(self._roster)

    def describe(self) -> DescribedGroup:
        """The group as an administrator sees it."""
        protocol = self._generations.protocol if self.state is GroupState.STABLE else None
        return DescribedGroup(
            state=self.state,
            protocol_type=self._roster.protocol_type,
            protocol=protocol or "",
            members=tuple(
                DescribedMember(
                    member.member_id,
                    member.instance_id,
                    member.client_id,
                    member.client_host,
                    member.subscription(protocol) if protocol else b"",
                    member.assignment if protocol else b"",
                )
                for member in self._roster
            ),
        )

    def subscribes(self, topic: str) -> bool:
        """Whether a member reads `topic`, or may: what it reads cannot always be told."""
        if self._roster.protocol_type != CONSUMER:
            return len(self._roster) > 0
        subscriptions = (
            subscribed_topics(subscription)
            for member in self._roster
            for _, subscription in member.protocols
        )
        return any(topics is None or topic in topics for topics in subscriptions)

    def _join(self, join: Join) -> None:
        identity = join.identity
        holder = self._holder(identity)
        refusal = self._join_refusal(join, holder)
        if refusal is not None:
            self._generations.answer(join.token, ErrorResponse(refusal, identity.member_id))
        elif holder is not None and identity.member_id == NO_MEMBER:
            self._replace(join, holder)
        elif holder is not None:
            self._join_again(join, holder)
        elif identity == MemberIdentity(NO_MEMBER) and join.takes_id_first:
            expires_s = self._generations.now_s + join.session_timeout_ms / 1000
            self._roster.pending[join.fresh_id] = expires_s
            required = MemberIdRequired(f"join again as {join.fresh_id}")
            self._generations.answer(join.token, ErrorResponse(required, join.fresh_id))
        else:
            self._roster.pending.pop(identity.member_id, None)
            self._roster.protocol_type = join.protocol_type
            member_id = identity.member_id or join.fresh_id
            self._generations.add(Member.joining(member_id, join, self._generations.now_s))

    def _holder(self, identity: MemberIdentity) -> Member | None:
        """The member whose place this one takes: its own, or that of its instance id."""
        if identity.member_id == NO_MEMBER:
            return self._roster.static(identity.instance_id)
        return self._roster.find(identity.member_id)

    def _join_refusal(self, join: Join, holder: Member | None) -> RequestRefused | None:
        identity, limits = join.identity, self._limits
        lowest, highest = limits.session_timeout_ms_min, limits.session_timeout_ms_max
        if not lowest <= join.session_timeout_ms <= highest:
            return InvalidSessionTimeout(
                f"session timeout is {join.session_timeout_ms} ms; allowed is {lowest} to {highest}"
            )
        is_pending = identity.member_id in self._roster.pending and identity.instance_id is None
        if identity.member_id != NO_MEMBER and not is_pending:
            refusal = self._roster.refusal(identity)
            if refusal is not None:
                return refusal
        if not self._roster.accepts(join.protocol_type, join.protocols, holder):
            return InconsistentGroupProtocol("no protocol, or none that all members share")
        size = len(self._roster) + len(self._roster.pending)
        if holder is None and not is_pending and size >= limits.members_max:
            return GroupTooLarge(f"the group has {size} members, as many as are allowed")
        others = [each.protocols for each in self._roster if each is not holder]
        subscribed_bytes = sum(map(_subscribed_bytes, [*others, join.protocols]))
        if subscribed_bytes > SUBSCRIBED_BYTES_MAX:
            return GroupTooLarge(
                f"subscriptions have {subscribed_bytes} bytes; allowed in one group are "
                f"{SUBSCRIBED_BYTES_MAX}"
            )
        return None

    def _join_again(self, join: Join, member: Member) -> None:
        is_same = member.protocols == join.protocols
        is_leader = self._roster.leader == member.member_id
        if is_same and (
            # It has not heard the answer to its first JoinGroup.
            self.state is GroupState.COMPLETING_REBALANCE
            # A leader that joins again has a reason that it alone can see: a topic grew, say.
            or (self.state is GroupState.STABLE and not is_leader)
        ):
            member.heard_s = self._generations.now_s
            self._generations.answer(join.token, self._generations.joined(member))
            return
        self._await_generation(join, member, RebalanceInProgress("a newer request waits"))
        self._generations.rebalance()

    def _replace(self, join: Join, member: Member) -> None:
        """Let a static member that was started anew take its old place (KIP-345)."""
        old_leader, protocol = self._roster.leader, self._generations.protocol
        is_alike = (
            self.state is GroupState.STABLE
            and protocol is not None
            and member.subscribes_alike(join.protocol_type, protocol, join.protocols)
        )
        fenced = FencedInstance(f"{member.instance_id!r} is another member's now")
        self._await_generation(join, member, fenced)
        self._roster.rename(member, join.fresh_id)
        if is_alike and self._roster.choose_protocol() == protocol:
            self._generations.replace(member, old_leader)
        else:
            self._generations.rebalance()

    def _await_generation(self, join: Join, member: Member, reason: RequestRefused) -> None:
        """Have `join` wait; an older request of the member is answered with `reason`."""
        self._generations.answer_waiting(member, reason)
        self._roster.protocol_type = join.protocol_type
        member.update(join)
        member.join_token = join.token

    def _sync(self, sync: Sync) -> None:
        refusal = self._sync_refusal(sync)
        if refusal is not None:
            self._generations.answer(sync.token, ErrorResponse(refusal))
            return
        member = self._roster[sync.identity.member_id]
        member.has_synced = True
        member.heard_s = self._generations.now_s
        if self.state is GroupState.STABLE:
            self._generations.answer(sync.token, self._generations.synced(member))
            return
        superseded = RebalanceInProgress("a newer request waits")
        self._generations.answer_sync(member, ErrorResponse(superseded))
        member.sync_token = sync.token
        if self._roster.leader == member.member_id:
            self._generations.propose(sync.assignments)

    def _sync_refusal(self, sync: Sync) -> RequestRefused | None:
        refusal = self._refusal(sync.identity, sync.generation)
        if refusal is not None:
            return refusal
        if self.state is GroupState.PREPARING_REBALANCE:
            return RebalanceInProgress("members have changed")
        theirs = (sync.protocol_type, sync.protocol)
        ours = (self._roster.protocol_type, self._generations.protocol)
        if any(their not in (None, our) for their, our in zip(theirs, ours, strict=True)):
            return InconsistentGroupProtocol(f"protocol type and protocol are {ours}, not {theirs}")
        return None

    def _heartbeat(self, heartbeat: Heartbeat) -> Answer:
        refusal = self._refusal(heartbeat.identity, heartbeat.generation)
        if refusal is not None:
            return ErrorResponse(refusal)
        self._roster[heartbeat.identity.member_id].heard_s = self._generations.now_s
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorResponse(RebalanceInProgress("members have changed"))
        return Alive()

    def _leave(self, leave: Leave) -> None:
        size = len(self._roster)
        refusals = tuple(self._part_with(identity) for identity in leave.identities)
        self._generations.answer(leave.token, Left(refusals))
        if len(self._roster) < size:
            self._generations.rebalance()
        self._generations.complete_if_all_are_back()

    def _part_with(self, identity: MemberIdentity) -> RequestRefused | None:
        """Let one go, whose absence the others have to be told; why not, where it is nobody."""
        if self._roster.pending.pop(identity.member_id, None) is not None:
            return None
        member = self._holder(identity)
        if member is None or identity.member_id != NO_MEMBER:
            refusal = self._roster.refusal(identity)
            if refusal is not None:
                return refusal
        assert member is not None
        self._generations.answer_waiting(member, UnknownMember("the member has left"))
        self._roster.remove(member)
        return None

    def _refusal(self, identity: MemberIdentity, generation: int) -> RequestRefused | None:
        """Why one is no member of this generation; none where it is one."""
        refusal = self._roster.refusal(identity)
        if refusal is None and generation != self.generation:
            return IllegalGeneration(f"generation is {self.generation}, not {generation}")
        return refusal

    def _expire_sessions(self, now_s: float) -> None:
        pending = self._roster.pending
        for member_id in [each for each, expires_s in pending.items() if expires_s <= now_s]:
            del pending[member_id]
        self._generations.remove(
            [each for each in self._roster if not each.is_waiting and each.expires_s <= now_s]
        )
        self._generations.complete_if_all_are_back()

    def _find_check(self) -> None:
        sessions = (member.expires_s for member in self._roster if not member.is_waiting)
        pending = self._roster.pending.values()
        self.check_s = min((self._generations.phase_end_s, *sessions, *pending))

    def _take_effects(self) -> Effects:
        self._find_check()
        return self._generations.take_effects()


def _subscribed_bytes(protocols: Protocols) -> int:
    return sum(len(subscription) for _, subscription in protocols)
