"""Which consumer of a group reads which partition: pure, the same for every consumer that asks.

Source: the paper, Algorithm 1; Kafka 0.8, `RangeAssignor`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logbroker.groups.stored import TopicPartition

Assignment = Mapping[TopicPartition, str]
"""Partitions, each with the consumer thread that reads it: the value of its owner's znode."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """What the registries say of one group at one moment.

    `consumers` has the number of streams of each topic that each consumer reads, by its id;
    `partitions` has the numbers of the partitions of each topic.
    """

    consumers: Mapping[str, Mapping[str, int]]
    partitions: Mapping[str, Sequence[int]]


def thread_of(consumer_id: str, stream: int) -> str:
    """The name by which a stream of a consumer owns partitions; streams count from 0."""
    return f"{consumer_id}-{stream}"


def assign_partitions(view: GroupView, consumer_id: str) -> Assignment:
    """The partitions that are `consumer_id`'s, with the thread that reads each.

    For each topic: partitions sorted by number, threads by name, each thread a range; where they
    do not divide evenly, the first threads have one more. Over all consumers every partition of
    a topic that somebody reads comes up exactly once.
    """
    mine: dict[TopicPartition, str] = {}
    for topic, streams in view.consumers.get(consumer_id, {}).items():
        own = {thread_of(consumer_id, stream) for stream in range(streams)}
        numbers = sorted(view.partitions.get(topic, ()))
        for thread, start, end in _ranges(_threads(view, topic), len(numbers)):
            if thread in own:
                mine.update(((topic, number), thread) for number in numbers[start:end])
    return mine


def _threads(view: GroupView, topic: str) -> list[str]:
    return sorted(
        thread_of(consumer_id, stream)
        for consumer_id, subscription in view.consumers.items()
        for stream in range(subscription.get(topic, 0))
    )


def _ranges(threads: Sequence[str], partitions: int) -> list[tuple[str, int, int]]:
    """Each thread with its share [start, end) of so many partitions."""
    each, extra = divmod(partitions, len(threads))
    return [
        (thread, place * each + min(place, extra), (place + 1) * each + min(place + 1, extra))
        for place, thread in enumerate(threads)
    ]
