"""Asks the brokers which offsets there are, once, and fixes the ranges that tasks then read.

So a task that is tried again reads what it read the first time, and the driver knows what is read.
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
from spark_jobs.offsets.resolution import Bound, Bounds, Offsets

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class TopicPosition:
    """How far a topic has been read: the next offset of each partition, in the topic of an id."""

    topic_id: UUID | None
    offsets: Mapping[int, int]
    cuts: int = 0
    """How often offsets went back to where the log had lost its end: those behind came again."""

    gone: frozenset[int] = frozenset()
    """Partitions that were not there any more, which was passed over."""

    def is_of_another(self, topic_id: UUID | None) -> bool:
        """Whether the topic was made anew, as far as ids tell."""
        return None not in (self.topic_id, topic_id) and self.topic_id != topic_id


@dataclass(frozen=True)
class Plan:
    """What to read: a range for each partition, which may be empty; nothing is split yet."""

    ranges: list[OffsetRange]
    topic_ids: Mapping[str, UUID | None]
    losses: Losses
    gone: frozenset[TopicPartition] = frozenset()
    """What was read before, is not there any more, and was not known to be gone."""

    @property
    def position(self) -> dict[str, TopicPosition]:
        """How far the topics have been read once all ranges are."""
        return {
            topic: TopicPosition(
                topic_id, {each.partition: each.end for each in self.ranges if each.topic == topic}
            )
            for topic, topic_id in self.topic_ids.items()
        }


class LogView:
    """What the brokers of a cluster tell of the partitions of a choice."""

    def __init__(self, cluster: RawCluster, choice: Choice, *, read_committed: bool) -> None:
        self._cluster = cluster
        self.choice = choice
        self._read_committed = read_committed

    def topics(self) -> dict[str, TopicDescription]:
        """The topics of the choice that there are."""
        match self.choice:
            case Subscribed(topics):
                return self._present(topics)
            case Assigned(partitions):
                return self._present({topic for topic, _ in partitions})
        return self._cluster.topics(None)

    def partitions(self, topics: Mapping[str, TopicDescription]) -> set[TopicPartition]:
        """The partitions of the choice, of these topics."""
        return resolution.chosen(self.choice, topics)

    def bounds(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bound]:
        """Which offsets the partitions have now; up to the last stable one if so asked."""
        firsts, ends = self.firsts(partitions), self.ends(partitions)
        # A partition may be cut between both questions.
        return {each: Bound(firsts[each], max(firsts[each], ends[each])) for each in partitions}

    def firsts(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The first offset of each partition."""
        return self._asked(dict.fromkeys(partitions, EARLIEST))

    def ends(self, partitions: Collection[TopicPartition]) -> Offsets:
        """The end of each partition."""
        return self._asked(dict.fromkeys(partitions, LATEST))

    def resolve(self, limit: Limit, bounds: Bounds) -> Offsets:
        """The offset that a limit means in each partition of `bounds`.

        Raises:
            InvalidOption: the limit is one for other partitions, or a time has no record.
        """
        times = resolution.times(limit, bounds)
        return resolution.resolve(limit, bounds, self.at_times(times))

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset whose record is of the time or later; None where there is none."""
        if not times_ms:
            return {}
        return self._cluster.offsets(times_ms, read_committed=self._read_committed)

    def _asked(self, at: Mapping[TopicPartition, int]) -> Offsets:
        found = self._cluster.offsets(at, read_committed=self._read_committed) if at else {}
        return {place: offset for place, offset in found.items() if offset is not None}

    def _present(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        found: dict[str, TopicDescription] = {}
        for name in names:
            try:
                found |= self._cluster.topics([name])
            except UnknownTopic:
                _log.warning("topic %s is not there", name)
        return found


def everything(view: LogView) -> tuple[dict[str, TopicDescription], set[TopicPartition]]:
    """The topics and the partitions of a choice.

    Raises:
        InvalidOption: some that it names are not there.
    """
    topics = view.topics()
    partitions = view.partitions(topics)
    missing: list[str] = []
    match view.choice:
        case Subscribed(names):
            missing = [f"subscribe names {name}" for name in names if name not in topics]
        case Assigned(asked):
            missing = [f"assign names {place}" for place in asked - partitions]
    if missing:
        raise InvalidOption(f"{'; '.join(sorted(missing))}: not there")
    return topics, partitions


def plan_between(view: LogView, starting: Limit, ending: Limit, losses: Losses) -> Plan:
    """The ranges from one limit to another, as the log is now.

    Where the start lies behind the end nothing is read, as where the log is empty.

    Raises:
        InvalidOption: a topic or partition of the choice is not there, or see `LogView.resolve`.
        DataLost: offsets that were named are not in the log, and `losses` allows none.
    """
    topics, partitions = everything(view)
    bounds = view.bounds(partitions)
    ends = view.resolve(ending, bounds)
    starts = view.resolve(starting, bounds)
    ranges = [
        resolution.within(OffsetRange(*place, starts[place], ends[place]), bounds[place], losses)
        for place in sorted(partitions)
    ]
    return Plan(ranges, _ids(topics, partitions), losses)


def plan_onward(
    view: LogView, position: Mapping[str, TopicPosition], *, first_start: Limit, losses: Losses
) -> Plan:
    """The ranges from where the last run ended to the end of the log as it is now.

    Topics that were never read start at `first_start`, new partitions of others at 0.

    Raises:
        TopicReplaced: a topic was made anew, or ends before the position; `losses` allows none.
        DataLost: offsets after the position, or topics with one, are gone, and the position does
            not know that yet; `losses` allows none.
    """
    topics = view.topics()
    partitions = view.partitions(topics)
    bounds = view.bounds(partitions)
    fresh = {place: bounds[place] for place in partitions if place.topic not in position}
    starts = view.resolve(first_start, fresh) if fresh else {}
    gone = _newly_gone(position, partitions, losses)
    ranges = []
    for place in sorted(partitions):
        known = position.get(place.topic)
        start = starts[place] if known is None else _onward(place, known, topics, bounds, losses)
        asked = OffsetRange(*place, start, max(start, bounds[place].end))
        ranges.append(resolution.within(asked, bounds[place], losses))
    return Plan(ranges, _ids(topics, partitions), losses, gone)


def _onward(
    place: TopicPartition,
    known: TopicPosition,
    topics: Mapping[str, TopicDescription],
    bounds: Bounds,
    losses: Losses,
) -> int:
    """Where to go on in a partition of a topic that was read before."""
    start = known.offsets.get(place.partition)
    topic_id = topics[place.topic].topic_id
    is_other = known.is_of_another(topic_id)
    if start is None:
        # It came up after the last run. Its records began at 0, and those that are gone are lost.
        return bounds[place].first if is_other else 0
    if not is_other and start <= bounds[place].end:
        return start
    if not losses.are_allowed:
        raise TopicReplaced(
            f"{place} was read up to {start} in the topic of id {known.topic_id}; "
            f"now its id is {topic_id} and it ends at {bounds[place].end}: it was made anew, or cut"
        )
    if topic_id is not None and known.topic_id == topic_id:
        # What it still has was read already. To read it from its first offset would repeat it.
        _log.warning("%s was cut from %s to %s: read on there", place, start, bounds[place].end)
        return bounds[place].end
    _log.warning("%s was made anew, or cut: read from its first offset", place)
    return bounds[place].first


def _newly_gone(
    position: Mapping[str, TopicPosition], partitions: Collection[TopicPartition], losses: Losses
) -> frozenset[TopicPartition]:
    read = {
        TopicPartition(topic, number)
        for topic, known in position.items()
        for number in known.offsets.keys() - known.gone
    }
    gone = read - set(partitions)
    for place in sorted(gone):
        end = position[place.topic].offsets[place.partition]
        losses.add(OffsetRange(*place, end, end), "the partition is not there any more")
    return frozenset(gone)


def _ids(
    topics: Mapping[str, TopicDescription], partitions: Collection[TopicPartition]
) -> dict[str, UUID | None]:
    return {topic: topics[topic].topic_id for topic in sorted({topic for topic, _ in partitions})}
