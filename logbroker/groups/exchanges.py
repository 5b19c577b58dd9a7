"""What is asked of a consumer group, what it answers, and what it wants written down.

A token is whatever the asker knows its request by; each is answered exactly once.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from logbroker.errors import RequestRefused
from logbroker.groups.states import GroupState
from logbroker.groups.stored import StoredMembership

Token = Hashable

Protocols = tuple[tuple[str, bytes], ...]
"""Each protocol's name with the member's subscription in it, the one preferred first."""

NO_MEMBER: str = ""
"""The member id of one that has none yet."""

NO_GENERATION: int = -1


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """What a broker allows its groups."""

    initial_rebalance_delay_s: float
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    members_max: int


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """Who a request says it is from; `instance_id` is that of a static member (KIP-345)."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """JoinGroup.

    `fresh_id` is for a member that has no id yet. `takes_id_first` is true of clients that know
    MEMBER_ID_REQUIRED (KIP-394, from v4), `may_skip_assignment` of those from v9 (KIP-814).
    """

    token: Token
    identity: MemberIdentity
    fresh_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    takes_id_first: bool
    may_skip_assignment: bool


@dataclass(frozen=True, slots=True)
class Sync:
    """SyncGroup; `assignments` are for each member id, from the leader alone.

    Protocol type and protocol are told from v5 on.
    """

    token: Token
    identity: MemberIdentity
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Heartbeat."""

    token: Token
    identity: MemberIdentity
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """LeaveGroup; an administrator names static members by their instance ids alone."""

    token: Token
    identities: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """Who commits offsets; one who is in no group names neither member nor generation."""

    identity: MemberIdentity
    generation: int


Request = Join | Sync | Heartbeat | Leave


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """What the leader is told of a member; `subscription` is that of the chosen protocol."""

    member_id: str
    instance_id: str | None
    subscription: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The member is in `generation`; `members` are for its leader."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...]
    skips_assignment: bool


@dataclass(frozen=True, slots=True)
class Synced:
    """What the leader has assigned to the member."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    """A heartbeat that counted."""


@dataclass(frozen=True, slots=True)
class Left:
    """For each identity, in order: none where it has left."""

    refusals: tuple[RequestRefused | None, ...]


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """Why not; `member_id` is the one to come back with."""

    error: RequestRefused
    member_id: str = NO_MEMBER


Answer = Joined | Synced | Alive | Left | ErrorResponse


@dataclass(frozen=True, slots=True)
class Store:
    """Write `membership` down, then tell the group what became of write `number`.

    Writes of one group must become durable in the order in which it asks for them.
    """

    number: int
    membership: StoredMembership


@dataclass(frozen=True, slots=True)
class Effects:
    """What follows from something that happened to a group."""

    answers: tuple[tuple[Token, Answer], ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as an administrator sees it; a generation that is not stable has no bytes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as an administrator sees it."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
