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
from app.log.inspection.figures import Partition, Retention, Topic, TopicDetail, TopicPage
from app.log.inspection.gaps import Gaps
from app.log.inspection.questions import (
    EARLIEST,
    FIRST,
    LATEST,
    YOUNGEST,
    LogQuestions,
    Place,
    Position,
    answer,
    found,
)
from app.log.inspection.sizes import FIGURE as BYTES
from app.log.inspection.sizes import LogSizeReader

PARTITIONS_MAX: Final = 1_000
"""Of a page of a topic; each costs four look-ups."""

PARTITIONS_OF_LIST_MAX: Final = 10_000
"""Of all topics of a page; each costs two look-ups, of some 20 us here."""

_OFFSETS: Final = "offsets"
_TIMES: Final = "times"
_RETENTION: Final = "retention"
_MESSAGES: Final = "messages"


def topic_page(
    questions: LogQuestions,
    sizes: LogSizeReader,
    *,
    after: str,
    containing: str,
    limit: int,
    deadline: Deadline,
) -> TopicPage:
    """The first topics behind `after` whose names contain a text.

    Raises:
        LogUnavailable: no broker answers.
    """
    told = questions.metadata(deadline).topics
    matching = sorted(name for name in told if containing in name)
    behind = [name for name in matching if name > after]
    shown = {name: told[name] for name in behind[:limit]}
    gaps = Gaps()
    led = _bounded(shown, gaps)
    starts, ends = (questions.offsets(led, spec, deadline) for spec in (EARLIEST, LATEST))
    configs = questions.configs(list(shown), deadline)
    bytes_of = sizes.read(led, gaps)
    start_of, end_of = (found(each, _MESSAGES, deadline, gaps) for each in (starts, ends))
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
    next_after = behind[limit - 1] if len(behind) > limit else None
    return TopicPage(topics, len(matching), next_after, gaps.told())


def topic_detail(
    questions: LogQuestions, sizes: LogSizeReader, name: str, start: int, deadline: Deadline
) -> TopicDetail:
    """A topic and its partitions from number `start` on.

    Raises:
        NotInLog: the log has none of this name.
        LogUnavailable: no broker answers.
    """
    told = questions.topic(name, deadline)
    gaps = Gaps()
    if told.error is not None:
        gaps.note("partitions", told.error.str())
        return TopicDetail(Topic(name, 0, 0, 0, None, None, None), (), None, gaps.told())
    numbers = sorted(number for number in told.partitions if number >= start)
    shown = [told.partitions[number] for number in numbers[:PARTITIONS_MAX]]
    led = _led(name, shown)
    configs = questions.configs([name], deadline)
    asked = [questions.offsets(led, spec, deadline) for spec in (EARLIEST, LATEST, FIRST, YOUNGEST)]
    bytes_of = sizes.read(led, gaps)
    start_of, end_of = (found(each, _OFFSETS, deadline, gaps) for each in asked[:2])
    first_of, last_of = (found(each, _TIMES, deadline, gaps) for each in asked[2:])
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
    return TopicDetail(row, partitions, next_from, gaps.told())


def _bounded(topics: Mapping[str, TopicMetadata], gaps: Gaps) -> list[Place]:
    """The partitions that have a leader, of as many topics as are asked about."""
    places: list[Place] = []
    for name, topic in topics.items():
        if topic.error is not None:
            gaps.note(_MESSAGES, f"topic {name}: {topic.error.str()}")
        led = _led(name, topic.partitions.values())
        if len(places) + len(led) > PARTITIONS_OF_LIST_MAX:
            for figure in (_MESSAGES, BYTES):
                gaps.note(figure, f"the page has more than {PARTITIONS_OF_LIST_MAX} partitions")
            break
        places += led
    return places


def _led(topic: str, partitions: Iterable[PartitionMetadata]) -> list[Place]:
    return [(topic, each.id) for each in partitions if each.leader >= 0]


def _row(
    name: str,
    partitions: Collection[PartitionMetadata],
    start_of: Mapping[Place, Position],
    end_of: Mapping[Place, Position],
    bytes_of: Mapping[Place, int],
    retention: Retention | None,
) -> Topic:
    places = [(name, each.id) for each in partitions]
    spans = [
        end_of[place].offset - start_of[place].offset
        for place in places
        if place in start_of and place in end_of
    ]
    sizes = [bytes_of[place] for place in places if place in bytes_of]
    return Topic(
        name=name,
        partitions=len(partitions),
        offline=sum(each.leader < 0 for each in partitions),
        under_replicated=sum(len(each.isrs) < len(each.replicas) for each in partitions),
        messages=_sum(spans, places),
        bytes=_sum(sizes, places),
        retention=retention,
    )


def _sum(figures: Sequence[int], places: Sequence[Place]) -> int | None:
    """The sum; None where one is missing, for a part would be taken for the whole."""
    return sum(figures) if len(figures) == len(places) and places else None


def _offset(position: Position | None) -> int | None:
    return None if position is None else position.offset


def _time_ms(position: Position | None) -> int | None:
    return None if position is None or position.offset < 0 else position.timestamp_ms


def _retention(
    future: "Future[dict[str, ConfigEntry]]", deadline: Deadline, gaps: Gaps
) -> Retention | None:
    entries = answer(future, _RETENTION, deadline, gaps)
    if entries is None:
        return None
    values = {name: entry.value for name, entry in entries.items()}
    # Brokers need not have all of them: ours has no compaction.
    return Retention(
        ms=int(values.get("retention.ms") or -1),
        bytes=int(values.get("retention.bytes") or -1),
        policy=values.get("cleanup.policy") or "delete",
    )
