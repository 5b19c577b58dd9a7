"""Requests to a consumer group, its responses, and the state that it wants stored.

A token identifies a request for its sender; each request is answered exactly once.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from logbroker.errors import RequestRefused
from logbroker.groups.states import GroupState
from logbroker.groups.stored import StoredMembership

Token = Hashable

Protocols = tuple[tuple[str, bytes], ...]
"""Each protocol's name with the member's subscription, in the order of preference."""

NO_MEMBER: str = ""
"""The member id of a client that has none yet."""

NO_GENERATION: int = -1


@dataclass(frozen=True, slots=True)
class GroupLimits:
    """The broker's limits for groups."""

    initial_rebalance_delay_s: float
    session_timeout_ms_min: int
    session_timeout_ms_max: int
    members_max: int


@dataclass(frozen=True, slots=True)
class MemberIdentity:
    """The sender of a request; static members have an `instance_id` (KIP-345)."""

    member_id: str
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request.

    `fresh_id` is the id for a member that has none. `takes_id_first` is true for clients that know
    MEMBER_ID_REQUIRED (KIP-394, from v4), `may_skip_assignment` from v9 (KIP-814).
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
    """A SyncGroup request; only the leader sends `assignments`, by member id.

    Protocol type and protocol are sent from v5 on.
    """

    token: Token
    identity: MemberIdentity
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A Heartbeat request."""

    token: Token
    identity: MemberIdentity
    generation: int


@dataclass(frozen=True, slots=True)
class Leave:
    """A LeaveGroup request; administrators name static members only by instance id."""

    token: Token
    identities: tuple[MemberIdentity, ...]


@dataclass(frozen=True, slots=True)
class Commit:
    """The sender of an offset commit; a client without a group sends no member or generation."""

    identity: MemberIdentity
    generation: int


Request = Join | Sync | Heartbeat | Leave


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as sent to the leader; `subscription` is that of the chosen protocol."""

    member_id: str
    instance_id: str | None
    subscription: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The member is in `generation`; only the leader gets `members`."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[JoinedMember, ...]
    skips_assignment: bool


@dataclass(frozen=True, slots=True)
class Synced:
    """The member's assignment."""

    protocol_type: str
    protocol: str
    assignment: bytes


@dataclass(frozen=True, slots=True)
class Alive:
    """The heartbeat was accepted."""


@dataclass(frozen=True, slots=True)
class Left:
    """One entry per identity, in order; None for a member that has left."""

    refusals: tuple[RequestRefused | None, ...]


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """The request failed; `member_id` is the id for the next attempt."""

    error: RequestRefused
    member_id: str = NO_MEMBER


Answer = Joined | Synced | Alive | Left | ErrorResponse


@dataclass(frozen=True, slots=True)
class Store:
    """Store `membership`, then report the result of write `number`.

    Writes of one group must become durable in the order of their requests.
    """

    number: int
    membership: StoredMembership


@dataclass(frozen=True, slots=True)
class Effects:
    """The responses and writes that follow from an event."""

    answers: tuple[tuple[Token, Answer], ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class DescribedMember:
    """A member as shown to administrators; without bytes unless the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    subscription: bytes
    assignment: bytes


class GroupSummary(NamedTuple):
    """A group in the list of all groups."""

    group_id: str
    state: GroupState
    protocol_type: str


@dataclass(frozen=True, slots=True)
class DescribedGroup:
    """A group as shown to administrators."""

    state: GroupState
    protocol_type: str
    protocol: str
    members: tuple[DescribedMember, ...]
