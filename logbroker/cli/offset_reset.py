"""Plans the reset of a consumer group's offsets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from logbroker.cli.admin_command import CommandRefused
from logbroker.cli.group_admin import MEMBERLESS, GroupAdmin
from logbroker.cli.log_positions import LogPositions
from logbroker.client.admin import EARLIEST, LATEST, GroupDescription, TopicAndPartition, since


class SelectedPartitions(NamedTuple):
    """Partitions of a topic; all if `partitions` is empty."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """Reset to the log start offset."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """Reset to the log end offset."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """Reset to the first message that is not older, or to the log end offset."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToOffset:
    """Reset to one offset for all partitions, limited to the range of each log."""

    offset: int


Target = ToEarliest | ToLatest | ToTime | ToOffset


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """The new offset of one partition; `committed_offset` is the current one, if any."""

    topic: str
    partition: int
    committed_offset: int | None
    new_offset: int


def plan_reset(
    admin: GroupAdmin, group: str, choices: Sequence[SelectedPartitions] | None, target: Target
) -> list[PlannedOffset]:
    """Return the new offset of each selected partition, or of each with a committed offset.

    Raises:
        CommandRefused: the group has members, or a partition does not exist or has no leader.
    """
    leaders = admin.leaders()
    _check_memberless(admin.describe(group))
    committed = admin.committed(group)
    topic_partitions = _selected_partitions(leaders, choices) if choices else sorted(committed)
    if not topic_partitions:
        raise CommandRefused(f"group {group!r} has no committed offsets; choose topics by name")
    _check_led(leaders, topic_partitions)
    targets = _offsets(admin.positions, topic_partitions, target)
    return [PlannedOffset(*tp, committed.get(tp), targets[tp]) for tp in topic_partitions]


def _check_memberless(group: GroupDescription) -> None:
    if group.state not in MEMBERLESS:
        raise CommandRefused(
            f"group {group.group!r} is {group.state}, members: {len(group.members)}; "
            "offsets can be reset only in a group without members"
        )


def _selected_partitions(
    leaders: Mapping[TopicAndPartition, int | None], choices: Iterable[SelectedPartitions]
) -> list[TopicAndPartition]:
    numbers: dict[str, list[int]] = {}
    for topic, partition in leaders:
        numbers.setdefault(topic, []).append(partition)
    topic_partitions = set()
    for topic, partitions in choices:
        if topic not in numbers:
            raise CommandRefused(f"unknown topic {topic!r}")
        topic_partitions |= {(topic, partition) for partition in partitions or numbers[topic]}
    return sorted(topic_partitions)


def _check_led(
    leaders: Mapping[TopicAndPartition, int | None], topic_partitions: Iterable[TopicAndPartition]
) -> None:
    for topic, partition in topic_partitions:
        if (topic, partition) not in leaders:
            raise CommandRefused(f"unknown partition {partition} of topic {topic!r}")
        if leaders[topic, partition] is None:
            raise CommandRefused(
                f"partition {partition} of topic {topic!r} has no leader; cannot look up offsets"
            )


def _offsets(
    positions: LogPositions, topic_partitions: Sequence[TopicAndPartition], target: Target
) -> Mapping[TopicAndPartition, int]:
    spec = since(target.timestamp_ms) if isinstance(target, ToTime) else LATEST
    earliest, latest, found = positions.find(topic_partitions, (EARLIEST, LATEST, spec))
    offsets = {}
    for tp in topic_partitions:
        start, end = earliest.get(tp), latest.get(tp)
        if start is None or end is None or tp not in found:
            raise CommandRefused(f"the leader of partition {tp[1]} of {tp[0]!r} failed")
        match target:
            case ToEarliest():
                offsets[tp] = start.offset
            case ToLatest():
                offsets[tp] = end.offset
            case ToTime():
                offsets[tp] = (found[tp] or end).offset
            case ToOffset(offset):
                offsets[tp] = min(max(offset, start.offset), end.offset)
    return offsets
