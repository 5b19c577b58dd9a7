"""Assigns partitions to the consumers of a group; every consumer computes the same result.

Source: the paper, Algorithm 1; Kafka 0.8, `RangeAssignor`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from logbroker.groups.stored import TopicPartition

Assignment = Mapping[TopicPartition, str]
"""Partitions, each with the consumer thread that reads it: the value of its owner's znode."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """The consumers and partitions of one group, as read from the registries.

    `consumers` maps consumer ids to their number of streams per topic. `partitions` maps topics to
    partition numbers.
    """

    consumers: Mapping[str, Mapping[str, int]]
    partitions: Mapping[str, Sequence[int]]


def thread_of(consumer_id: str, stream: int) -> str:
    """Return the name under which a stream of a consumer owns partitions; streams count from 0."""
    return f"{consumer_id}-{stream}"


def assign_partitions(view: GroupView, consumer_id: str) -> Assignment:
    """Return the partitions of `consumer_id`, with the thread that reads each.

    For each topic, partitions are sorted by number and threads by name, and each thread gets a
    range. If they do not divide evenly, the first threads get one more. Over all consumers, every
    partition of a topic with consumers is assigned exactly once.
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
    """Return each thread with its range [start, end) of the partitions."""
    each, extra = divmod(partitions, len(threads))
    return [
        (thread, tp * each + min(tp, extra), (tp + 1) * each + min(tp + 1, extra))
        for tp, thread in enumerate(threads)
    ]
