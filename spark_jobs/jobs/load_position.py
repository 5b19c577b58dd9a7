"""The position of a table: up to which offset it has loaded each topic. Pure.

In a commit: {"topics": {TOPIC: {"id": UUID or null, "offsets": {PARTITION: next offset, …},
"asOfMs": ms}, …}}

`asOfMs`, in ms since 1970, is when these offsets were looked up: records acknowledged before are
below them. Two members are present only if needed. `cuts` counts truncations of the log, after
which the table may have several records for an offset. `gone` is [PARTITION, …], the partitions
that no longer existed when a load continued without them.

Jobs that read a raw table store their position in the same form, with their name:
{"job": NAME, "topics": …}.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final
from uuid import UUID

from logbroker.client.raw import TopicPartition
from spark_jobs.errors import CorruptTable
from spark_jobs.log.planning import TopicPosition
from spark_jobs.tables.manifest import Position

_JOB: Final = "job"
_TOPICS: Final = "topics"
_TIME: Final = "asOfMs"
_TRUNCATIONS: Final = "cuts"
_GONE: Final = "gone"


def read_position(position: Position, job: str | None = None) -> dict[str, TopicPosition]:
    """The position in a commit of a job, or of the load; empty if there was none.

    Raises:
        CorruptTable: it is not a position of that job.
    """
    if not position:
        return {}
    with _reading("a load" if job is None else job):
        if position.get(_JOB) != job:
            raise ValueError(position.get(_JOB))
        return {topic: _read(each) for topic, each in position[_TOPICS].items()}


def read_times(position: Position) -> dict[str, int]:
    """When the offsets of each topic were looked up, in ms since 1970.

    Raises:
        CorruptTable: it is not the position of a load.
    """
    with _reading():
        return {topic: int(each[_TIME]) for topic, each in position.get(_TOPICS, {}).items()}


def write_position(
    topics: Mapping[str, TopicPosition], times_ms: Mapping[str, int], job: str | None = None
) -> Position:
    """The position for a commit of a job, or of the load."""
    return {
        **({} if job is None else {_JOB: job}),
        _TOPICS: {
            topic: {**_write(each), _TIME: times_ms[topic]}
            for topic, each in sorted(topics.items())
        },
    }


def advance_position(
    before: Mapping[str, TopicPosition],
    after: Mapping[str, TopicPosition],
    gone: Iterable[TopicPartition] = (),
) -> dict[str, TopicPosition]:
    """The position after a load, including topics and partitions that it did not read.

    `gone` are partitions that no longer exist. A recreated topic has only its present partitions.
    """
    joined = dict(before)
    for topic, partition in gone:
        known = joined[topic]
        joined[topic] = replace(known, gone=known.gone | {partition})
    for topic, now in after.items():
        known = joined.get(topic, now)
        joined[topic] = now if known.is_replaced_by(now.topic_id) else _joined(known, now)
    return joined


def has_moved_back(known: TopicPosition, now: TopicPosition) -> bool:
    """Whether a partition is at a lower offset than before."""
    return any(now.offsets.get(number, offset) < offset for number, offset in known.offsets.items())


def _joined(known: TopicPosition, now: TopicPosition) -> TopicPosition:
    return TopicPosition(
        now.topic_id,
        {**known.offsets, **now.offsets},
        known.truncations + has_moved_back(known, now),
        known.gone - now.offsets.keys(),
    )


@contextmanager
def _reading(owner: str = "a load") -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptTable(
            f"the last commit of the table does not have the position of {owner}: "
            "the table belongs to another job, or its manifest was modified"
        ) from error


def _read(document: Mapping[str, object]) -> TopicPosition:
    topic_id, offsets = document["id"], document["offsets"]
    truncations, gone = document.get(_TRUNCATIONS, 0), document.get(_GONE, [])
    if not isinstance(offsets, Mapping) or not isinstance(gone, list):
        raise TypeError(document)
    return TopicPosition(
        None if topic_id is None else UUID(str(topic_id)),
        {int(partition): int(offset) for partition, offset in offsets.items()},
        int(str(truncations)),
        frozenset(map(int, gone)),
    )


def _write(position: TopicPosition) -> dict[str, object]:
    return {
        "id": None if position.topic_id is None else str(position.topic_id),
        "offsets": {str(number): offset for number, offset in sorted(position.offsets.items())},
        **({_TRUNCATIONS: position.truncations} if position.truncations else {}),
        **({_GONE: sorted(position.gone)} if position.gone else {}),
    }
