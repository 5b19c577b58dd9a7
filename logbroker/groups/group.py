"""One consumer group: its members' requests, and the expiry of their sessions.

A state machine without clock, storage or socket. Each request comes with the time and a token. The
results are responses by token (to this request, or to others that waited) and memberships to store.

Source: Kafka's classic consumer groups; KIP-345 (static members), KIP-394 (member ids first),
KIP-814 (static leaders that rejoin).
"""

from collections.abc import Mapping
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
from logbroker.groups.generations import NEVER_S, Generations
from logbroker.groups.member import CONSUMER, Member, subscribed_topics
from logbroker.groups.messages import (
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
from logbroker.groups.states import GroupState
from logbroker.groups.stored import CommittedOffset, StoredMembership, TopicPartition

SUBSCRIBED_BYTES_MAX: Final = 400_000
"""The maximum of all members' subscriptions together.

With assignments of half that size, a generation still fits one stored entry, of some 900 KB in
base64.
"""


class Group:
    """A group at its coordinator; `now_s` is always on the same monotonic clock.

    `expire_members` need not be called before `next_check_s`.
    """

    def __init__(self, limits: GroupLimits) -> None:
        self.next_check_s = NEVER_S
        self._limits = limits
        self._generations = Generations(limits.initial_rebalance_delay_s)
        self._member_list = self._generations.member_list

    @classmethod
    def restored(cls, limits: GroupLimits, stored: StoredMembership, now_s: float) -> "Group":
        """Create a group from stored state; all sessions start now."""
        group = cls(limits)
        group._generations.now_s = now_s
        group._generations.restore(stored)
        group._schedule_check()
        return group

    @property
    def state(self) -> GroupState:
        """The group's state."""
        return self._generations.state

    @property
    def generation(self) -> int:
        """The number of the current or last generation; 0 before the first."""
        return self._generations.number

    @property
    def has_no_state(self) -> bool:
        """Whether the group equals a new one of the same name."""
        return not (self._member_list or self._member_list.pending or self.generation)

    def handle(self, request: Request, now_s: float) -> Effects:
        """Handle a request; its response may be part of later effects."""
        self._generations.now_s = now_s
        match request:
            case Heartbeat():
                # Heartbeats are frequent, and never advance the next check.
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

    def check_commit(self, commit: Commit, now_s: float) -> RequestRefused | None:
        """Return why the sender may not commit offsets; None if it may."""
        if commit.generation < 0 and self.state is GroupState.EMPTY:
            return None
        refusal = self._check_member(commit.identity, commit.generation)
        if refusal is not None:
            return refusal
        if self.state is GroupState.COMPLETING_REBALANCE:
            return RebalanceInProgress("the generation has no assignment yet")
        # During a rebalance, members may still commit processed offsets.
        self._member_list[commit.identity.member_id].last_seen_s = now_s
        return None

    def complete_write(self, number: int, failure: RequestRefused | None, now_s: float) -> Effects:
        """Handle the result of write `number`; after a failure its state is unknown."""
        self._generations.now_s = now_s
        self._generations.complete_write(number, failure)
        return self._take_effects()

    def expire_members(self, now_s: float) -> Effects:
        """Remove members whose sessions or deadlines have expired."""
        self._generations.now_s = now_s
        self._expire_sessions(now_s)
        if self._generations.phase_end_s <= now_s:
            self._generations.end_phase()
        return self._take_effects()

    def drop_waiting_request(self, token: Token, now_s: float) -> Effects:
        """Forget the request of `token`, whose connection is closed.

        The member may return with its id. A member that never received its id is removed.
        """
        self._generations.now_s = now_s
        member = self._member_list.find_waiting(token)
        if member is not None:
            member.join_token = member.sync_token = None
            member.last_seen_s = now_s
            if member.is_unreachable:
                self._generations.remove_members([member])
        return self._take_effects()

    def extend_deadlines(self, gap_s: float, now_s: float) -> None:
        """Extend all deadlines by `gap_s`, in which the coordinator accepted no requests."""
        for member in self._member_list:
            member.last_seen_s = now_s
        pending = self._member_list.pending
        pending.update({each: expires_s + gap_s for each, expires_s in pending.items()})
        self._generations.extend_deadlines(gap_s)
        self._schedule_check()

    def reject_waiting(self, reason: RequestRefused, now_s: float) -> Effects:
        """Reject all waiting requests with `reason`; members may retry."""
        self._generations.now_s = now_s
        for member in self._member_list:
            self._generations.reject_member_requests(member, reason)
        self._generations.remove_members(
            [each for each in self._member_list if each.is_unreachable]
        )
        return self._take_effects()

    def reset_generation(self) -> None:
        """Restart at generation 0 if the group is empty, after its stored state was deleted."""
        if self.state is GroupState.EMPTY:
            self._generations.number = 0

    def retire(self, reason: RequestRefused) -> Effects:
        """End the group, and reject waiting requests with `reason`."""
        self._generations.retire(reason)
        return self._take_effects()

    @property
    def members(self) -> int:
        """The number of members, including those that have not rejoined yet."""
        return len(self._member_list)

    @property
    def protocol_type(self) -> str:
        """What the members are, such as `consumer`; empty if there was none."""
        return self._member_list.protocol_type

    def describe(self) -> DescribedGroup:
        """Return the group as shown to administrators."""
        protocol = self._generations.protocol if self.state is GroupState.STABLE else None
        return DescribedGroup(
            state=self.state,
            protocol_type=self._member_list.protocol_type,
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
                for member in self._member_list
            ),
        )

    def may_subscribe(self, topic: str) -> bool:
        """Return whether a member may read `topic`; True if its subscription is unknown."""
        topics = self._subscribed_topics()
        return topics is None or topic in topics

    def expired_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], emptied_ms: int, before_ms: int
    ) -> list[TopicPartition]:
        """Return the partitions whose offsets were committed, and last needed, before `before_ms`.

        An empty group, which became empty at `emptied_ms`, needs none. A stable group needs those
        of the topics that its members may read. During a rebalance, no offset expires.

        Source: KIP-211.
        """
        is_empty = self.state is GroupState.EMPTY and emptied_ms < before_ms
        if not is_empty and self.state is not GroupState.STABLE:
            return []
        old = [place for place, each in offsets.items() if each.committed_ms < before_ms]
        topics = self._subscribed_topics() if old else None
        if topics is None:
            return []
        return [place for place in old if place[0] not in topics]

    def _subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics that members may read; None if a subscription is unknown."""
        if self._member_list.protocol_type != CONSUMER and len(self._member_list) > 0:
            return None
        found: set[str] = set()
        for member in self._member_list:
            for _, subscription in member.protocols:
                topics = subscribed_topics(subscription)
                if topics is None:
                    return None
                found |= topics
        return frozenset(found)

    def _join(self, join: Join) -> None:
        identity = join.identity
        existing = self._existing_member(identity)
        refusal = self._check_join(join, existing)
        if refusal is not None:
            self._generations.answer(join.token, ErrorResponse(refusal, identity.member_id))
        elif existing is not None and identity.member_id == NO_MEMBER:
            self._replace_static_member(join, existing)
        elif existing is not None:
            self._rejoin(join, existing)
        elif identity == MemberIdentity(NO_MEMBER) and join.takes_id_first:
            expires_s = self._generations.now_s + join.session_timeout_ms / 1000
            self._member_list.pending[join.fresh_id] = expires_s
            required = MemberIdRequired(f"join again as {join.fresh_id}")
            self._generations.answer(join.token, ErrorResponse(required, join.fresh_id))
        else:
            self._member_list.pending.pop(identity.member_id, None)
            self._member_list.protocol_type = join.protocol_type
            member_id = identity.member_id or join.fresh_id
            self._generations.add_member(Member.joining(member_id, join, self._generations.now_s))

    def _existing_member(self, identity: MemberIdentity) -> Member | None:
        """Return the member with the same member id or instance id."""
        if identity.member_id == NO_MEMBER:
            return self._member_list.find_static(identity.instance_id)
        return self._member_list.find(identity.member_id)

    def _check_join(self, join: Join, existing: Member | None) -> RequestRefused | None:
        identity, limits = join.identity, self._limits
        lowest, highest = limits.session_timeout_ms_min, limits.session_timeout_ms_max
        if not lowest <= join.session_timeout_ms <= highest:
            return InvalidSessionTimeout(
                f"session timeout is {join.session_timeout_ms} ms; allowed is {lowest} to {highest}"
            )
        is_pending = (
            identity.member_id in self._member_list.pending and identity.instance_id is None
        )
        if identity.member_id != NO_MEMBER and not is_pending:
            refusal = self._member_list.check_identity(identity)
            if refusal is not None:
                return refusal
        if not self._member_list.accepts(join.protocol_type, join.protocols, existing):
            return InconsistentGroupProtocol("the members share no protocol")
        size = len(self._member_list) + len(self._member_list.pending)
        if existing is None and not is_pending and size >= limits.members_max:
            return GroupTooLarge(f"the group has {size} members, the maximum")
        others = [each.protocols for each in self._member_list if each is not existing]
        subscribed_bytes = sum(map(_subscribed_bytes, [*others, join.protocols]))
        if subscribed_bytes > SUBSCRIBED_BYTES_MAX:
            return GroupTooLarge(
                f"the group's subscriptions have {subscribed_bytes} bytes; "
                f"maximum {SUBSCRIBED_BYTES_MAX}"
            )
        return None

    def _rejoin(self, join: Join, member: Member) -> None:
        is_same = member.protocols == join.protocols
        is_leader = self._member_list.leader == member.member_id
        if is_same and (
            # It has not received the response to its first JoinGroup.
            self.state is GroupState.COMPLETING_REBALANCE
            # A leader rejoins for a reason that only it knows, such as a topic with new partitions.
            or (self.state is GroupState.STABLE and not is_leader)
        ):
            member.last_seen_s = self._generations.now_s
            self._generations.answer(join.token, self._generations.join_response(member))
            return
        self._await_generation(join, member, RebalanceInProgress("a newer request waits"))
        self._generations.rebalance()

    def _replace_static_member(self, join: Join, member: Member) -> None:
        """Replace a static member by its restarted process (KIP-345)."""
        old_leader, protocol = self._member_list.leader, self._generations.protocol
        is_same_subscription = (
            self.state is GroupState.STABLE
            and protocol is not None
            and member.has_same_subscription(join.protocol_type, protocol, join.protocols)
        )
        fenced = FencedInstance(f"instance id {member.instance_id!r} has another member")
        self._await_generation(join, member, fenced)
        self._member_list.rename(member, join.fresh_id)
        if is_same_subscription and self._member_list.choose_protocol() == protocol:
            self._generations.replace_member(member, old_leader)
        else:
            self._generations.rebalance()

    def _await_generation(self, join: Join, member: Member, reason: RequestRefused) -> None:
        """Let `join` wait; an older request of the member is rejected with `reason`."""
        self._generations.reject_member_requests(member, reason)
        self._member_list.protocol_type = join.protocol_type
        member.update(join)
        member.join_token = join.token

    def _sync(self, sync: Sync) -> None:
        refusal = self._check_sync(sync)
        if refusal is not None:
            self._generations.answer(sync.token, ErrorResponse(refusal))
            return
        member = self._member_list[sync.identity.member_id]
        member.has_synced = True
        member.last_seen_s = self._generations.now_s
        if self.state is GroupState.STABLE:
            self._generations.answer(sync.token, self._generations.sync_response(member))
            return
        superseded = RebalanceInProgress("a newer request waits")
        self._generations.answer_sync(member, ErrorResponse(superseded))
        member.sync_token = sync.token
        if self._member_list.leader == member.member_id:
            self._generations.store_assignment(sync.assignments)

    def _check_sync(self, sync: Sync) -> RequestRefused | None:
        refusal = self._check_member(sync.identity, sync.generation)
        if refusal is not None:
            return refusal
        if self.state is GroupState.PREPARING_REBALANCE:
            return RebalanceInProgress("members have changed")
        theirs = (sync.protocol_type, sync.protocol)
        ours = (self._member_list.protocol_type, self._generations.protocol)
        if any(their not in (None, our) for their, our in zip(theirs, ours, strict=True)):
            return InconsistentGroupProtocol(f"protocol type and protocol are {ours}, not {theirs}")
        return None

    def _heartbeat(self, heartbeat: Heartbeat) -> Answer:
        refusal = self._check_member(heartbeat.identity, heartbeat.generation)
        if refusal is not None:
            return ErrorResponse(refusal)
        self._member_list[heartbeat.identity.member_id].last_seen_s = self._generations.now_s
        if self.state is GroupState.PREPARING_REBALANCE:
            return ErrorResponse(RebalanceInProgress("members have changed"))
        return Alive()

    def _leave(self, leave: Leave) -> None:
        size = len(self._member_list)
        refusals = tuple(self._remove_leaving_member(identity) for identity in leave.identities)
        self._generations.answer(leave.token, Left(refusals))
        if len(self._member_list) < size:
            self._generations.rebalance()
        self._generations.complete_if_all_joined()

    def _remove_leaving_member(self, identity: MemberIdentity) -> RequestRefused | None:
        """Remove one member, and return the error if it is unknown."""
        if self._member_list.pending.pop(identity.member_id, None) is not None:
            return None
        member = self._existing_member(identity)
        if member is None or identity.member_id != NO_MEMBER:
            refusal = self._member_list.check_identity(identity)
            if refusal is not None:
                return refusal
        assert member is not None
        self._generations.reject_member_requests(member, UnknownMember("the member has left"))
        self._member_list.remove(member)
        return None

    def _check_member(self, identity: MemberIdentity, generation: int) -> RequestRefused | None:
        """Return why `identity` is not a member of this generation; None if it is."""
        refusal = self._member_list.check_identity(identity)
        if refusal is None and generation != self.generation:
            return IllegalGeneration(f"generation is {self.generation}, not {generation}")
        return refusal

    def _expire_sessions(self, now_s: float) -> None:
        pending = self._member_list.pending
        for member_id in [each for each, expires_s in pending.items() if expires_s <= now_s]:
            del pending[member_id]
        self._generations.remove_members(
            [each for each in self._member_list if not each.is_waiting and each.expires_s <= now_s]
        )
        self._generations.complete_if_all_joined()

    def _schedule_check(self) -> None:
        sessions = (member.expires_s for member in self._member_list if not member.is_waiting)
        pending = self._member_list.pending.values()
        self.next_check_s = min((self._generations.phase_end_s, *sessions, *pending))

    def _take_effects(self) -> Effects:
        self._schedule_check()
        return self._generations.take_effects()


def _subscribed_bytes(protocols: Protocols) -> int:
    return sum(len(subscription) for _, subscription in protocols)
