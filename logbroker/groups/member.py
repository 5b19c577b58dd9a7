"""Members of a consumer group, and the topics that their subscriptions name.

A subscription begins with:

    0  version  int16
    2  topics   int32 count, then each an int16 length and UTF-8

User data and later fields follow; a coordinator does not read them.

Source: Kafka, the schema `ConsumerProtocolSubscription`.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from logbroker.groups.messages import Join, JoinedMember, Protocols, Token
from logbroker.groups.stored import StoredMember

CONSUMER: Final = "consumer"
"""The protocol type of groups whose members subscribe to topics."""

_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")


def subscribed_topics(subscription: bytes) -> frozenset[str] | None:
    """Return the names of the topics; None if the bytes are not a subscription."""
    try:
        return frozenset(_topics(subscription))
    except (struct.error, ValueError):
        return None


def _topics(data: bytes) -> Iterator[str]:
    _, count = _VERSION_AND_COUNT.unpack_from(data)
    position = _VERSION_AND_COUNT.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(data, position)
        start = position + _LENGTH.size
        position = start + length
        if not start <= position <= len(data):
            raise ValueError(f"topic of {length} bytes where {len(data) - start} are left")
        yield data[start:position].decode()


@dataclass(slots=True)
class Member:
    """A member of a group; its session started last at `last_seen_s`.

    `join_token` and `sync_token` belong to waiting requests. A client sends no heartbeats while a
    request waits, so its session does not expire then.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    last_seen_s: float
    assignment: bytes = b""
    join_token: Token | None = None
    sync_token: Token | None = None
    may_skip_assignment: bool = False
    knows_its_id: bool = True
    has_synced: bool = True
    """Whether no SyncGroup request of this generation is outstanding."""

    @classmethod
    def joining(cls, member_id: str, join: Join, now_s: float) -> "Member":
        """Create a member that waits for its first generation."""
        return cls(
            member_id=member_id,
            instance_id=join.identity.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=_rebalance_timeout_ms(join),
            protocols=join.protocols,
            last_seen_s=now_s,
            join_token=join.token,
            may_skip_assignment=join.may_skip_assignment,
            knows_its_id=join.identity.member_id == member_id,
        )

    @classmethod
    def restored(cls, stored: StoredMember, now_s: float) -> "Member":
        """Create a member from stored state; its session starts now."""
        return cls(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout_ms,
            rebalance_timeout_ms=stored.rebalance_timeout_ms,
            protocols=stored.protocols,
            last_seen_s=now_s,
            assignment=stored.assignment,
        )

    @property
    def is_waiting(self) -> bool:
        """Whether a request of the member is waiting."""
        return self.join_token is not None or self.sync_token is not None

    @property
    def is_unreachable(self) -> bool:
        """Whether no client can return as this member, because none received its id."""
        return not self.is_waiting and not self.knows_its_id and self.instance_id is None

    @property
    def expires_s(self) -> float:
        """When the session expires without another request."""
        return self.last_seen_s + self.session_timeout_ms / 1000

    def update(self, join: Join) -> None:
        """Apply the fields of a repeated JoinGroup."""
        self.client_id = join.client_id
        self.client_host = join.client_host
        self.session_timeout_ms = join.session_timeout_ms
        self.rebalance_timeout_ms = _rebalance_timeout_ms(join)
        self.protocols = join.protocols
        self.may_skip_assignment = join.may_skip_assignment

    def subscription(self, protocol: str) -> bytes:
        """Return the subscription for one of the member's protocols."""
        return dict(self.protocols)[protocol]

    def has_same_subscription(self, protocol_type: str, protocol: str, other: Protocols) -> bool:
        """Return whether `other` has the same subscription in `protocol`.

        Of consumers only the topics are compared, because the bytes also contain previously owned
        partitions.
        """
        theirs = dict(other).get(protocol)
        if theirs is None or protocol_type != CONSUMER:
            return theirs is not None
        return subscribed_topics(theirs) == subscribed_topics(self.subscription(protocol))

    def as_joined(self, protocol: str) -> JoinedMember:
        """Return the member as sent to the leader."""
        return JoinedMember(self.member_id, self.instance_id, self.subscription(protocol))

    def as_stored(self, assignment: bytes) -> StoredMember:
        """Return the member as stored for the next coordinator."""
        return StoredMember(
            member_id=self.member_id,
            instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
            protocols=self.protocols,
            assignment=assignment,
        )


def _rebalance_timeout_ms(join: Join) -> int:
    # JoinGroup v0 has none; with zero, the group would rebalance forever.
    return join.rebalance_timeout_ms if join.rebalance_timeout_ms >= 0 else join.session_timeout_ms
