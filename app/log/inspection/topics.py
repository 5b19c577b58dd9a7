"""Topics: a page of them, and one in detail."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Final

from confluent_kafka.admin import (
    ConfigEntry,
    PartitionMetadata,
    TopicMetadata,
)

from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import (
    Gaps,
    Partition,
    Retention,
    Topic,
    TopicDetail,
    TopicPage,
)
from app.log.inspection.requests import InspectionRequests, positions_of, wait_for
from app.log.inspection.sizes import FIGURE as BYTES
from app.log.inspection.sizes import LogSizeReader
from logbroker.client.admin import EARLIEST, LATEST, NEWEST, LogPosition, TopicAndPartition, since

PARTITIONS_MAX: Final = 1_000
"""Partitions of one page of a topic; each needs four lookups."""

PARTITIONS_OF_LIST_MAX: Final = 10_000
"""Partitions of all topics of a page; each needs two lookups of some 20 us."""

_OFFSETS: Final = "offsets"
_TIMES: Final = "times"
_RETENTION: Final = "retention"
_MESSAGES: Final = "messages"


def topic_page(
    requests: InspectionRequests,
    sizes: LogSizeReader,
    *,
    after: str,
    containing: str,
    limit: int,
    deadline: Deadline,
) -> TopicPage:
    """Return the first topics after `after` whose names contain a text.

    Raises:
        LogUnavailable: no broker answers.
    """
    topics_by_name = requests.metadata(deadline).topics
    matching = sorted(name for name in topics_by_name if containing in name)
    following = [name for name in matching if name > after]
    shown = {name: topics_by_name[name] for name in following[:limit]}
    gaps = Gaps()
    led = _bounded(shown, gaps)
    starts, ends = (requests.offsets(led, spec, deadline) for spec in (EARLIEST, LATEST))
    configs = requests.configs(list(shown), deadline)
    bytes_of = sizes.read(led, gaps)
    start_of, end_of = (positions_of(each, _MESSAGES, deadline, gaps) for each in (starts, ends))
    topics = tuple(
        _row(
            name,
            topic.partitions.values(),
            start_of,
            end_of,
            bytes_of,
            _retention(configs[name], deadline, gaps),
        )
        for name, topic in shown.items()
    )
    next_after = following[limit - 1] if len(following) > limit else None
    return TopicPage(topics, len(matching), next_after, gaps.all())


def topic_detail(
    requests: InspectionRequests, sizes: LogSizeReader, name: str, start: int, deadline: Deadline
) -> TopicDetail:
    """Return a topic and its partitions from number `start` on.

    Raises:
        NotInLog: the topic does not exist.
        LogUnavailable: no broker answers.
    """
    found = requests.topic(name, deadline)
    gaps = Gaps()
    if found.error is not None:
        gaps.add("partitions", found.error.str())
        return TopicDetail(Topic(name, 0, 0, 0, None, None, None), (), None, gaps.all())
    numbers = sorted(number for number in found.partitions if number >= start)
    shown = [found.partitions[number] for number in numbers[:PARTITIONS_MAX]]
    led = _led(name, shown)
    configs = requests.configs([name], deadline)
    specs = (EARLIEST, LATEST, since(0), NEWEST)
    futures = [requests.offsets(led, spec, deadline) for spec in specs]
    bytes_of = sizes.read(led, gaps)
    start_of, end_of = (positions_of(each, _OFFSETS, deadline, gaps) for each in futures[:2])
    first_of, last_of = (positions_of(each, _TIMES, deadline, gaps) for each in futures[2:])
    partitions = tuple(
        Partition(
            number=each.id,
            leader=each.leader if each.leader >= 0 else None,
            replicas=tuple(each.replicas),
            isr=tuple(each.isrs),
            start_offset=_offset(start_of.get((name, each.id))),
            end_offset=_offset(end_of.get((name, each.id))),
            first_ms=_time_ms(first_of.get((name, each.id))),
            last_ms=_time_ms(last_of.get((name, each.id))),
            bytes=bytes_of.get((name, each.id)),
        )
        for each in shown
    )
    retention = _retention(configs[name], deadline, gaps)
    row = _row(name, shown, start_of, end_of, bytes_of, retention)
    next_from = numbers[PARTITIONS_MAX] if len(numbers) > PARTITIONS_MAX else None
    return TopicDetail(row, partitions, next_from, gaps.all())


def _bounded(topics: Mapping[str, TopicMetadata], gaps: Gaps) -> list[TopicAndPartition]:
    """Return the partitions with a leader, up to the limit of a page."""
    topic_partitions: list[TopicAndPartition] = []
    for name, topic in topics.items():
        if topic.error is not None:
            gaps.add(_MESSAGES, f"topic {name}: {topic.error.str()}")
        led = _led(name, topic.partitions.values())
        if len(topic_partitions) + len(led) > PARTITIONS_OF_LIST_MAX:
            for figure in (_MESSAGES, BYTES):
                gaps.add(figure, f"the page has more than {PARTITIONS_OF_LIST_MAX} partitions")
            break
        topic_partitions += led
    return topic_partitions


def _led(topic: str, partitions: Iterable[PartitionMetadata]) -> list[TopicAndPartition]:
    return [(topic, each.id) for each in partitions if each.leader >= 0]


def _row(
    name: str,
    partitions: Collection[PartitionMetadata],
    start_of: Mapping[TopicAndPartition, LogPosition],
    end_of: Mapping[TopicAndPartition, LogPosition],
    bytes_of: Mapping[TopicAndPartition, int],
    retention: Retention | None,
) -> Topic:
    topic_partitions = [(name, each.id) for each in partitions]
    spans = [
        end_of[tp].offset - start_of[tp].offset
        for tp in topic_partitions
        if tp in start_of and tp in end_of
    ]
    ends = [end_of[tp].offset for tp in topic_partitions if tp in end_of]
    sizes = [bytes_of[tp] for tp in topic_partitions if tp in bytes_of]
    return Topic(
        name=name,
        partitions=len(partitions),
        offline=sum(each.leader < 0 for each in partitions),
        under_replicated=sum(len(each.isrs) < len(each.replicas) for each in partitions),
        messages=_sum(spans, topic_partitions),
        bytes=_sum(sizes, topic_partitions),
        retention=retention,
        written=_sum(ends, topic_partitions),
    )


def _sum(figures: Sequence[int], topic_partitions: Sequence[TopicAndPartition]) -> int | None:
    """Return the sum; None if one figure is missing."""
    return sum(figures) if len(figures) == len(topic_partitions) and topic_partitions else None


def _offset(position: LogPosition | None) -> int | None:
    return None if position is None else position.offset


def _time_ms(position: LogPosition | None) -> int | None:
    return None if position is None or not position.has_record else position.timestamp_ms


def _retention(
    future: "Future[dict[str, ConfigEntry]]", deadline: Deadline, gaps: Gaps
) -> Retention | None:
    entries = wait_for(future, _RETENTION, deadline, gaps)
    if entries is None:
        return None
    values = {name: entry.value for name, entry in entries.items()}
    # Brokers may lack some of them: logbroker has no compaction.
    return Retention(
        ms=int(values.get("retention.ms") or -1),
        bytes=int(values.get("retention.bytes") or -1),
        policy=values.get("cleanup.policy") or "delete",
    )
