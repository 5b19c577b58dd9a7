"""A consumer group of the paper, as its registries describe it."""

from collections.abc import Mapping
from dataclasses import dataclass

from logbroker.groups.stored import TopicPartition


@dataclass(frozen=True, slots=True)
class PaperConsumer:
    """A registered consumer; `streams` is how many it reads of each topic."""

    consumer_id: str
    streams: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PaperGroup:
    """What the three registries have of one group; owners are streams of its consumers."""

    consumers: list[PaperConsumer]
    owners: Mapping[TopicPartition, str]
    offsets: Mapping[TopicPartition, int]
