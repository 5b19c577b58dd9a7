"""Looks up offsets at the brokers once, and fixes the ranges that tasks read.

With fixed ranges, a retried task reads the same records, and the driver knows what is read.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from logbroker.client.errors import UnknownTopic
from logbroker.client.raw import EARLIEST, LATEST, RawCluster, TopicDescription, TopicPartition
from spark_jobs.errors import InvalidOption, TopicReplaced
from spark_jobs.offsets import resolution
from spark_jobs.offsets.limits import Assigned, Choice, Limit, Subscribed
from spark_jobs.offsets.ranges import Losses, OffsetRange
from spark_jobs.offsets.resolution import BoundsByPartition, OffsetBounds, Offsets

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicPosition:
    """The next offset of each partition of a topic, which has this id."""

    topic_id: UUID | None
    offsets: Mapping[int, int]
    truncations: int = 0
    """How often a partition was continued at a lower offset because its log was truncated."""

    gone: frozenset[int] = frozenset()
    """Partitions that no longer existed in an earlier run, which skipped them."""

    def is_replaced_by(self, topic_id: UUID | None) -> bool:
        """Whether a topic of this id is another one; False if an id is unknown."""
        return None not in (self.topic_id, topic_id) and self.topic_id != topic_id


@dataclass(frozen=True)
class Plan:
    """A range for each partition, possibly empty and not yet split."""

    ranges: list[OffsetRange]
    topic_ids: Mapping[str, UUID | None]
    losses: Losses
    gone: frozenset[TopicPartition] = frozenset()
    """Partitions of the position that no longer exist, and were not known to be gone."""

    @property
    def position(self) -> dict[str, TopicPosition]:
        """The position of the topics after all ranges are read."""
        return {
            topic: TopicPosition(
                topic_id, {each.partition: each.end for each in self.ranges if each.topic == topic}
            )
            for topic, topic_id in self.topic_ids.items()
        }


class LogView:
    """Metadata and offsets of the partitions of a choice."""

    def __init__(self, cluster: RawCluster, choice: Choice, *, read_committed: bool) -> None:
        self._cluster = cluster
        self.choice = choice
        self._read_committed = read_committed

    def topics(self) -> dict[str, TopicDescription]:
        """The existing topics of the choice."""
        match self.choice:
            case Subscribed(topics):
                return self._existing_topics(topics)
            case Assigned(partitions):
                return self._existing_topics({topic for topic, _ in partitions})
        return self._cluster.topics(None)

    def partitions(self, topics: Mapping[str, TopicDescription]) -> set[TopicPartition]:
        """The partitions of the choice, among these topics."""
        return resolution.chosen_partitions(self.choice, topics)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetBounds]:
        """The current offsets of the partitions; their ends depend on the isolation level."""
        firsts, ends = self.first_offsets(partitions), self.end_offsets(partitions)
        # A partition may be truncated between both requests.
        return {
            each: OffsetBounds(firsts[each], max(firsts[each], ends[each])) for each in partitions
        }

    def first_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset of each partition."""
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def end_offsets(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The end offset of each partition."""
        return self._list_offsets(dict.fromkeys(partitions, LATEST))

    def resolve_limit(self, limit: Limit, bounds: BoundsByPartition) -> Offsets:
        """The offset of a limit in each partition of `bounds`.

        Raises:
            InvalidOption: the limit names other partitions, or a time has no record.
        """
        times = resolution.lookup_times(limit, bounds)
        return resolution.resolve_offsets(limit, bounds, self.offsets_at_times(times))

    def offsets_at_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset with that time or a later one; None if there is none."""
        if not times_ms:
            return {}
        return self._cluster.offsets(times_ms, read_committed=self._read_committed)

    def _list_offsets(self, at: Mapping[TopicPartition, int]) -> Offsets:
        found = self._cluster.offsets(at, read_committed=self._read_committed) if at else {}
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def _existing_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        for name in names:
            try:
                found |= self._cluster.topics([name])
            except UnknownTopic:
                _log.warning("topic %s does not exist", name)
        return found


def require_chosen(view: LogView) -> tuple[dict[str, TopicDescription], set[TopicPartition]]:
    """The topics and partitions of a choice.

    Raises:
        InvalidOption: one that the choice names does not exist.
    """
    topics = view.topics()
    partitions = view.partitions(topics)
    missing: list[str] = []
    match view.choice:
        case Subscribed(names):
            missing = [f"subscribe has topic {name}" for name in names if name not in topics]
        case Assigned(asked):
            missing = [f"assign has partition {tp}" for tp in asked - partitions]
    if missing:
        raise InvalidOption(f"{', '.join(sorted(missing))}: does not exist")
    return topics, partitions


def plan_between(view: LogView, starting: Limit, ending: Limit, losses: Losses) -> Plan:
    """The ranges from one limit to another in the current log.

    A range is empty if its start is after its end, or if the log is empty.

    Raises:
        InvalidOption: a topic or partition of the choice does not exist; or see
            `LogView.resolve_limit`.
        DataLost: requested offsets are not in the log, and `losses` allows none.
    """
    topics, partitions = require_chosen(view)
    bounds = view.bounds(partitions)
    ends = view.resolve_limit(ending, bounds)
    starts = view.resolve_limit(starting, bounds)
    ranges = [
        resolution.clip_range(OffsetRange(*tp, starts[tp], ends[tp]), bounds[tp], losses)
        for tp in sorted(partitions)
    ]
    return Plan(ranges, _ids(topics, partitions), losses)


def plan_incremental(
    view: LogView, position: Mapping[str, TopicPosition], *, first_start: Limit, losses: Losses
) -> Plan:
    """The ranges from a position to the current end of the log.

    Topics without a position start at `first_start`, new partitions of other topics at 0.

    Raises:
        TopicReplaced: a topic was recreated, or ends before the position; `losses` allows none.
        DataLost: offsets after the position, or a topic, are gone, which the position does not
            record yet; `losses` allows none.
    """
    topics = view.topics()
    partitions = view.partitions(topics)
    bounds = view.bounds(partitions)
    fresh = {tp: bounds[tp] for tp in partitions if tp.topic not in position}
    starts = view.resolve_limit(first_start, fresh) if fresh else {}
    gone = _newly_gone(position, partitions, losses)
    ranges = []
    for tp in sorted(partitions):
        known = position.get(tp.topic)
        start = starts[tp] if known is None else _next_start(tp, known, topics, bounds, losses)
        asked = OffsetRange(*tp, start, max(start, bounds[tp].end))
        ranges.append(resolution.clip_range(asked, bounds[tp], losses))
    return Plan(ranges, _ids(topics, partitions), losses, gone)


def _next_start(
    tp: TopicPartition,
    known: TopicPosition,
    topics: Mapping[str, TopicDescription],
    bounds: BoundsByPartition,
    losses: Losses,
) -> int:
    """The start offset in a partition of a topic that was read before."""
    start = known.offsets.get(tp.partition)
    topic_id = topics[tp.topic].topic_id
    is_other = known.is_replaced_by(topic_id)
    if start is None:
        # A new partition. Its records began at 0, and deleted ones are a loss.
        return bounds[tp].first if is_other else 0
    if not is_other and start <= bounds[tp].end:
        return start
    if not losses.are_allowed:
        raise TopicReplaced(
            f"{tp} was read up to {start} with topic id {known.topic_id}; it now ends at "
            f"{bounds[tp].end} with topic id {topic_id}: it was recreated or truncated"
        )
    if topic_id is not None and known.topic_id == topic_id:
        # The remaining records were read before; the first offset would repeat them.
        _log.warning("%s was truncated from %s to %s: continuing there", tp, start, bounds[tp].end)
        return bounds[tp].end
    _log.warning("%s was recreated or truncated: reading from its first offset", tp)
    return bounds[tp].first


def _newly_gone(
    position: Mapping[str, TopicPosition], partitions: Collection[TopicPartition], losses: Losses
) -> frozenset[TopicPartition]:
    read = {
        TopicPartition(topic, number)
        for topic, known in position.items()
        for number in known.offsets.keys() - known.gone
    }
    gone = read - set(partitions)
    for tp in sorted(gone):
        end = position[tp.topic].offsets[tp.partition]
        losses.add(OffsetRange(*tp, end, end), "the partition no longer exists")
    return frozenset(gone)


def _ids(
    topics: Mapping[str, TopicDescription], partitions: Collection[TopicPartition]
) -> dict[str, UUID | None]:
    return {topic: topics[topic].topic_id for topic in sorted({topic for topic, _ in partitions})}
