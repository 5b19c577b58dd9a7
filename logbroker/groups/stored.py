"""The stored state of consumer groups: membership, owners and committed offsets.

A coordinator writes it before it answers. The next coordinator of the group continues from it, so
that members keep their generation when a broker dies.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

TopicPartition = tuple[str, int]

NO_LEADER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """The offset of the next record to read; `metadata` is a text of the client."""

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    committed_ms: int = field(default=0, compare=False)
    """When it was committed, in ms since 1970."""


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member of a generation; `protocols` are (name, subscription), the preferred first."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredMembership:
    """One generation of a group, as of its assignment.

    An empty group keeps its generation number, which never decreases.
    """

    generation: int
    protocol_type: str
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...]
    stored_ms: int = field(default=0, compare=False)
    """When it was stored, in ms since 1970: for an empty group, the time when it became empty."""


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A stored group; a group that only commits offsets has no membership."""

    group_id: str
    membership: StoredMembership | None
    offsets: Mapping[TopicPartition, CommittedOffset]

    @property
    def emptied_ms(self) -> int:
        """When the last member left; 0 if the group has members or never had any."""
        if self.membership is None or self.membership.members:
            return 0
        return self.membership.stored_ms


@dataclass(frozen=True, slots=True)
class PaperConsumer:
    """A registered consumer of the paper; `streams` is its number of streams per topic."""

    consumer_id: str
    streams: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PaperGroup:
    """The three registries of one group of the paper; an owner is a stream of a consumer."""

    consumers: list[PaperConsumer]
    owners: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, int]
