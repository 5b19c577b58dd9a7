"""How far a table has loaded its topics, as its commits keep it. Pure.

{"topics": {TOPIC: {"id": UUID or null, "offsets": {PARTITION: next offset, …}, "asOfMs": ms}, …}}

`asOfMs`, in ms since 1970, is when the log was asked for these offsets: what was acknowledged
before is below them. Beside it are, where there were any, `cuts`: how often offsets went back to
where the log had lost its end, so that the table has several records of an offset; and `gone`:
[PARTITION, …], those that were not there any more when a load went on without them.

Jobs that read a table of records keep what they have read of it likewise, with their name beside
it: {"job": NAME, "topics": …}.
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
_CUTS: Final = "cuts"
_GONE: Final = "gone"


def read_position(position: Position, job: str | None = None) -> dict[str, TopicPosition]:
    """The position of a commit of a job, or of the load; nothing where there was none.

    Raises:
        CorruptTable: it is not the position of such a job.
    """
    if not position:
        return {}
    with _reading("a load" if job is None else job):
        if position.get(_JOB) != job:
            raise ValueError(position.get(_JOB))
        return {topic: _read(each) for topic, each in position[_TOPICS].items()}


def read_times(position: Position) -> dict[str, int]:
    """When the log was asked for the offsets of each topic, in ms since 1970.

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


def moved_on(
    before: Mapping[str, TopicPosition],
    after: Mapping[str, TopicPosition],
    gone: Iterable[TopicPartition] = (),
) -> dict[str, TopicPosition]:
    """The position after a load, with what it did not read of where it was.

    `gone` are partitions that it did not find any more. A topic that was made anew has the
    partitions that it has now, and no others.
    """
    joined = dict(before)
    for topic, partition in gone:
        known = joined[topic]
        joined[topic] = replace(known, gone=known.gone | {partition})
    for topic, now in after.items():
        known = joined.get(topic, now)
        joined[topic] = now if known.is_of_another(now.topic_id) else _joined(known, now)
    return joined


def went_back(known: TopicPosition, now: TopicPosition) -> bool:
    """Whether a partition is not read as far as it was."""
    return any(now.offsets.get(number, offset) < offset for number, offset in known.offsets.items())


def _joined(known: TopicPosition, now: TopicPosition) -> TopicPosition:
    return TopicPosition(
        now.topic_id,
        {**known.offsets, **now.offsets},
        known.cuts + went_back(known, now),
        known.gone - now.offsets.keys(),
    )


@contextmanager
def _reading(owner: str = "a load") -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptTable(
            f"the last commit of the table does not have the position of {owner}: "
            "another job keeps this table, or its manifest was changed"
        ) from error


def _read(document: Mapping[str, object]) -> TopicPosition:
    topic_id, offsets = document["id"], document["offsets"]
    cuts, gone = document.get(_CUTS, 0), document.get(_GONE, [])
    if not isinstance(offsets, Mapping) or not isinstance(gone, list):
        raise TypeError(document)
    return TopicPosition(
        None if topic_id is None else UUID(str(topic_id)),
        {int(partition): int(offset) for partition, offset in offsets.items()},
        int(str(cuts)),
        frozenset(map(int, gone)),
    )


def _write(position: TopicPosition) -> dict[str, object]:
    return {
        "id": None if position.topic_id is None else str(position.topic_id),
        "offsets": {str(number): offset for number, offset in sorted(position.offsets.items())},
        **({_CUTS: position.cuts} if position.cuts else {}),
        **({_GONE: sorted(position.gone)} if position.gone else {}),
    }
