"""Where a consumer group shall go on: which partitions, and from which offset each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from logbroker.cli.admin_command import CommandRefused
from logbroker.cli.group_admin import MEMBERLESS, GroupAdmin
from logbroker.cli.log_positions import LogPositions
from logbroker.client.admin import EARLIEST, LATEST, GroupDescription, Place, since


class SelectedPartitions(NamedTuple):
    """A topic, and those of its partitions that are meant; all where none is named."""

    topic: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The first offset that is there."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The end of the log."""


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first message that is not older; the end of the log where all are."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ToOffset:
    """One offset for all; where the log does not reach so far, its nearest end."""

    offset: int


Target = ToEarliest | ToLatest | ToTime | ToOffset


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """What a reset makes of one partition; `committed_offset` is the present one, if any."""

    topic: str
    partition: int
    committed_offset: int | None
    new_offset: int


def plan_reset(
    admin: GroupAdmin, group: str, choices: Sequence[SelectedPartitions] | None, target: Target
) -> list[PlannedOffset]:
    """The new offset of each partition chosen; of each that has one committed without `choices`.

    Raises:
        CommandRefused: the group has members; or what is chosen is not there, or has no leader.
    """
    leaders = admin.leaders()
    _check_memberless(admin.describe(group))
    committed = admin.committed(group)
    places = _places(leaders, choices) if choices else sorted(committed)
    if not places:
        raise CommandRefused(f"group {group!r} has no committed offsets; choose topics by name")
    _check_led(leaders, places)
    targets = _offsets(admin.positions, places, target)
    return [PlannedOffset(*place, committed.get(place), targets[place]) for place in places]


def _check_memberless(group: GroupDescription) -> None:
    if group.state not in MEMBERLESS:
        raise CommandRefused(
            f"group {group.group!r} is {group.state}, members: {len(group.members)}; "
            "its offsets can be reset only while it has none"
        )


def _places(
    leaders: Mapping[Place, int | None], choices: Iterable[SelectedPartitions]
) -> list[Place]:
    numbers: dict[str, list[int]] = {}
    for topic, partition in leaders:
        numbers.setdefault(topic, []).append(partition)
    places = set()
    for topic, partitions in choices:
        if topic not in numbers:
            raise CommandRefused(f"there is no topic {topic!r}")
        places |= {(topic, partition) for partition in partitions or numbers[topic]}
    return sorted(places)


def _check_led(leaders: Mapping[Place, int | None], places: Iterable[Place]) -> None:
    for topic, partition in places:
        if (topic, partition) not in leaders:
            raise CommandRefused(f"there is no partition {partition} of topic {topic!r}")
        if leaders[topic, partition] is None:
            raise CommandRefused(
                f"partition {partition} of topic {topic!r} has no leader to ask for its offsets"
            )


def _offsets(
    positions: LogPositions, places: Sequence[Place], target: Target
) -> Mapping[Place, int]:
    spec = since(target.timestamp_ms) if isinstance(target, ToTime) else LATEST
    earliest, latest, found = positions.find(places, (EARLIEST, LATEST, spec))
    offsets = {}
    for place in places:
        start, end = earliest.get(place), latest.get(place)
        if start is None or end is None or place not in found:
            raise CommandRefused(f"the leader of partition {place[1]} of {place[0]!r} went away")
        match target:
            case ToEarliest():
                offsets[place] = start.offset
            case ToLatest():
                offsets[place] = end.offset
            case ToTime():
                offsets[place] = (found[place] or end).offset
            case ToOffset(offset):
                offsets[place] = min(max(offset, start.offset), end.offset)
    return offsets
