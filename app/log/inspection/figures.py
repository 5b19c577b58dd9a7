"""The figures that an inspection returns. Offsets count records, times are milliseconds, UTC."""

from dataclasses import dataclass

from logbroker.client.admin import GroupMember


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a figure is None, or rows are missing.

    `figure` is the name of the field or of the rows (`partitions`, `members`, `groups`); `reason`
    is the first one. It may contain addresses, so it is for operators only.
    """

    figure: str
    reason: str


class Gaps:
    """Collects one gap for each figure, with the first reason."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def add(self, figure: str, reason: str) -> None:
        """Add why a figure is missing."""
        self._reasons.setdefault(figure, reason)

    def all(self) -> tuple[Gap, ...]:
        """Return all gaps, in the order of their addition."""
        return tuple(Gap(figure, reason) for figure, reason in self._reasons.items())


@dataclass(frozen=True, slots=True)
class Broker:
    """A live broker. With KRaft, any broker may be shown as the controller."""

    id: int
    host: str
    port: int
    is_controller: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster and its brokers, by id; `id` is None if brokers report none."""

    id: str | None
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a topic keeps records: -1 is unlimited. `policy` is Kafka's, such as `delete`."""

    ms: int
    bytes: int
    policy: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as a row of a list.

    `messages` is the number of its offsets, including transaction markers and compacted records.
    `bytes` is the size of its logs at their leaders, without replicas. `offline` partitions have no
    leader; `under_replicated` ones lack in-sync replicas. `written` is the sum of its end offsets:
    its messages and those that were deleted.
    """

    name: str
    partitions: int
    offline: int
    under_replicated: int
    messages: int | None
    bytes: int | None
    retention: Retention | None
    written: int | None = None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Topics by name, of `total` matching ones; `next_after` is `after` of the next page."""

    topics: tuple[Topic, ...]
    total: int
    next_after: str | None
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition with the offsets `[start_offset, end_offset)`.

    `first_ms` is the time of its first record, `last_ms` the latest time of any; both None without
    records. `replicas` and `isr` are broker ids; the preferred leader comes first.
    """

    number: int
    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start_offset: int | None
    end_offset: int | None
    first_ms: int | None
    last_ms: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class TopicDetail:
    """A topic with a page of its partitions, by number.

    `topic` has the sums of this page; `next_from` is `start` of the next one.
    """

    topic: Topic
    partitions: tuple[Partition, ...]
    next_from: int | None
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as a row of a list.

    `state` is Kafka's (`Stable`, `Empty`, ...), `protocol` the assignor, empty without members.
    `lag` is the sum over partitions with a committed offset, None without any. `is_mirror` marks
    the group of a `logbroker mirror`, `mirrors_to` is its destination cluster, if known.
    """

    id: str
    state: str | None
    protocol: str | None
    coordinator: int | None
    members: int | None
    partitions: int | None
    lag: int | None
    is_mirror: bool
    mirrors_to: str | None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """Groups by id, of `total`; `next_after` is `after` of the next page."""

    groups: tuple[Group, ...]
    total: int
    next_after: str | None
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group reads, or has committed an offset of.

    `committed` is the offset of the next record to read, `lag` the number of offsets up to `end`.
    `owner` is the id of the member that the partition is assigned to.
    """

    topic: str
    number: int
    committed: int | None
    end: int | None
    lag: int | None
    owner: str | None


@dataclass(frozen=True, slots=True)
class GroupDetail:
    """A group with its members and partitions, both in order."""

    group: Group
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupPartition, ...]
    gaps: tuple[Gap, ...]
