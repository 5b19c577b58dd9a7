"""The figures that operators see of the log. Offsets count records, times are milliseconds, UTC."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gap:
    """Why some figures are None, or some rows are left out.

    `figure` is the field's name, or the rows' (`partitions`, `members`, `groups`); `reason` is the
    first that was met, and may name addresses: for operators alone.
    """

    figure: str
    reason: str


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker that lives. In a cluster with KRaft any of them may be called the controller."""

    id: int
    host: str
    port: int
    is_controller: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster and its brokers, by id; `id` is None where brokers tell none."""

    id: str | None
    brokers: tuple[Broker, ...]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a topic keeps records: -1 is without a bound. `policy` is Kafka's, as `delete`."""

    ms: int
    bytes: int
    policy: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as a row of a list.

    `messages` is the span of its offsets: markers of transactions and what compaction took away
    count. `bytes` is what its logs take at their leaders, compressed as they are, without replicas.
    `offline` partitions have no leader; `under_replicated` ones lack replicas in sync.
    """

    name: str
    partitions: int
    offline: int
    under_replicated: int
    messages: int | None
    bytes: int | None
    retention: Retention | None


@dataclass(frozen=True, slots=True)
class TopicPage:
    """Topics by name, of `total` that match; with `next_after` as `after` comes the next page."""

    topics: tuple[Topic, ...]
    total: int
    next_after: str | None
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: it holds the offsets `[start_offset, end_offset)`.

    `first_ms` is the time of its first record, `last_ms` the latest time of any; None without
    records too. `replicas` and `isr` are ids of brokers, the first in line leading.
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

    `topic` has the sums of this page alone where there are several; `next_from` as `start` gives
    the next.
    """

    topic: Topic
    partitions: tuple[Partition, ...]
    next_from: int | None
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as a row of a list.

    `state` is Kafka's word (`Stable`, `Empty`, ...), `protocol` the way it shares partitions, empty
    without members. `lag` is the sum over partitions that have a position, None if none has.
    `is_mirror` says that `logbroker mirror` reads by it, `mirrors_to` the cluster that it copies
    to, where that is known.
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
    """Groups by id, of `total`; with `next_after` as `after` comes the next page."""

    groups: tuple[Group, ...]
    total: int
    next_after: str | None
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, and the partitions that it has, as topic and number."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """A partition that a group reads, or has a position in.

    `committed` is the offset of the record to read next, None without a position; `lag` is how many
    offsets lie between it and `end`. `owner` is the id of the member that has the partition.
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
    members: tuple[Member, ...]
    partitions: tuple[GroupPartition, ...]
    gaps: tuple[Gap, ...]
