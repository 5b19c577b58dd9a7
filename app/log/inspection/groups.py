"""Consumer groups: a page of them, and one in detail."""

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions
from confluent_kafka.admin import (
    ConsumerGroupDescription,
    MemberDescription,
)

from app.log.errors import NotInLog
from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import Group, GroupDetail, GroupPage, GroupPartition, Member
from app.log.inspection.gaps import Gaps
from app.log.inspection.mirrors import mirror_of
from app.log.inspection.questions import LATEST, LogQuestions, Place, answer, found

PARTITIONS_MAX: Final = 1_000
"""Of one group in detail."""

MEMBERS_MAX: Final = 1_000
ENDS_MAX: Final = 10_000
"""Partitions of all groups of a page whose ends are asked for."""

_GROUPS: Final = "groups"
_STATE: Final = "state"
_POSITIONS: Final = "committed"
_LAG: Final = "lag"

# The words of Kafka's protocol and of its own tools.
_STATES: Final[Mapping[object, str]] = {
    ConsumerGroupState.UNKNOWN: "Unknown",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}


class _Told(NamedTuple):
    """What the coordinator of a group says; None is not known."""

    description: ConsumerGroupDescription | None
    committed: Mapping[Place, int] | None

    @property
    def members(self) -> Sequence[MemberDescription]:
        return () if self.description is None else self.description.members

    @property
    def owners(self) -> dict[Place, str]:
        return {
            (each.topic, each.partition): member.member_id
            for member in self.members
            for each in member.assignment.topic_partitions
        }

    @property
    def places(self) -> list[Place]:
        return sorted((self.committed or {}).keys() | self.owners.keys())


def group_page(
    questions: LogQuestions, *, after: str, containing: str, limit: int, deadline: Deadline
) -> GroupPage:
    """The first groups behind `after` whose ids contain a text.

    Raises:
        LogUnavailable: no broker answers.
    """
    leaders = _leaders(questions, deadline)
    gaps = Gaps()
    matching = [group for group in _listed(questions, deadline, gaps) if containing in group]
    behind = [group for group in matching if group > after]
    groups = _rows(questions, behind[:limit], leaders, deadline, gaps)
    next_after = behind[limit - 1] if len(behind) > limit else None
    return GroupPage(groups, len(matching), next_after, gaps.told())


def mirror_groups(questions: LogQuestions, limit: int, deadline: Deadline) -> GroupPage:
    """The groups of mirrors, found among `limit` groups: first those that are named so.

    Raises:
        LogUnavailable: no broker answers.
    """
    leaders = _leaders(questions, deadline)
    gaps = Gaps()
    ids = _listed(questions, deadline, gaps)
    ids.sort(key=lambda group: mirror_of(group, ()) is None)
    rows = _rows(questions, ids[:limit], leaders, deadline, gaps)
    mirrors = tuple(sorted((each for each in rows if each.is_mirror), key=lambda each: each.id))
    return GroupPage(mirrors, len(mirrors), None, gaps.told())


def group_detail(questions: LogQuestions, group: str, deadline: Deadline) -> GroupDetail:
    """One group.

    Raises:
        NotInLog: its coordinator has never heard of it.
        LogUnavailable: no broker answers.
    """
    if not group or "\0" in group:  # which the client does not take
        raise _no_group(group)
    leaders = _leaders(questions, deadline)
    gaps = Gaps()
    told = _ask(questions, [group], deadline, gaps)[group]
    description = told.description
    is_dead = description is not None and description.state == ConsumerGroupState.DEAD
    if is_dead and not told.places:
        raise _no_group(group)
    places = told.places
    if len(places) > PARTITIONS_MAX:
        gaps.note("partitions", f"the first {PARTITIONS_MAX} of {len(places)} are shown")
    if len(told.members) > MEMBERS_MAX:
        gaps.note("members", f"the first {MEMBERS_MAX} of {len(told.members)} are shown")
    ends = _ends(questions, [told], leaders, deadline, gaps)
    owners = told.owners
    return GroupDetail(
        group=_row(group, told, ends),
        members=tuple(sorted(map(_member, told.members), key=_order)[:MEMBERS_MAX]),
        partitions=tuple(
            _partition(place, told, ends, owners.get(place)) for place in places[:PARTITIONS_MAX]
        ),
        gaps=gaps.told(),
    )


def _no_group(group: str) -> NotInLog:
    return NotInLog(f"the log has no group {group!r}")


def _listed(questions: LogQuestions, deadline: Deadline, gaps: Gaps) -> list[str]:
    """The ids of all groups, sorted."""
    listing = answer(questions.groups(deadline), _GROUPS, deadline, gaps)
    if listing is None:
        return []
    for error in listing.errors or ():
        gaps.note(_GROUPS, str(error))
    return sorted({each.group_id for each in listing.valid or ()})


def _rows(
    questions: LogQuestions,
    groups: Sequence[str],
    leaders: frozenset[Place],
    deadline: Deadline,
    gaps: Gaps,
) -> tuple[Group, ...]:
    told = _ask(questions, groups, deadline, gaps)
    ends = _ends(questions, told.values(), leaders, deadline, gaps)
    return tuple(_row(group, each, ends) for group, each in told.items())


def _leaders(questions: LogQuestions, deadline: Deadline) -> frozenset[Place]:
    """The partitions that have one."""
    return frozenset(
        (name, number)
        for name, topic in questions.metadata(deadline).topics.items()
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    )


def _ask(
    questions: LogQuestions, groups: Sequence[str], deadline: Deadline, gaps: Gaps
) -> dict[str, _Told]:
    described = questions.described(groups, deadline)
    committed = questions.committed(groups, deadline)
    return {
        group: _Told(
            answer(described[group], _STATE, deadline, gaps),
            _positions(committed[group], deadline, gaps),
        )
        for group in groups
    }


def _positions(
    future: "Future[ConsumerGroupTopicPartitions]", deadline: Deadline, gaps: Gaps
) -> Mapping[Place, int] | None:
    told = answer(future, _POSITIONS, deadline, gaps)
    if told is None:
        return None
    positions: dict[Place, int] = {}
    for each in told.topic_partitions or ():
        if each.error is not None:
            gaps.note(_POSITIONS, f"{each.topic}-{each.partition}: {each.error.str()}")
        elif each.offset >= 0:  # negative is the client's word for "none"
            positions[each.topic, each.partition] = each.offset
    return positions


def _ends(
    questions: LogQuestions,
    groups: Collection[_Told],
    leaders: frozenset[Place],
    deadline: Deadline,
    gaps: Gaps,
) -> dict[Place, int]:
    """Where the logs end that groups read."""
    wanted = sorted({place for told in groups for place in told.places} & leaders)
    if len(wanted) > ENDS_MAX:
        gaps.note(_LAG, f"the groups read more than {ENDS_MAX} partitions")
    asked = questions.offsets(wanted[:ENDS_MAX], LATEST, deadline)
    return {place: end.offset for place, end in found(asked, _LAG, deadline, gaps).items()}


def _row(group: str, told: _Told, ends: Mapping[Place, int]) -> Group:
    description = told.description
    coordinator = None if description is None else description.coordinator
    mirror = mirror_of(group, {each.client_id for each in told.members})
    return Group(
        id=group,
        state=None if description is None else _STATES[description.state],
        protocol=None if description is None else description.partition_assignor or "",
        coordinator=None if coordinator is None else coordinator.id,
        members=None if description is None else len(told.members),
        partitions=None if told.committed is None else len(told.places),
        lag=_lag_of_all(told.committed, ends),
        is_mirror=mirror is not None,
        mirrors_to=None if mirror is None else mirror.destination,
    )


def _lag_of_all(committed: Mapping[Place, int] | None, ends: Mapping[Place, int]) -> int | None:
    """The sum; None where one is not known, or there is no position at all."""
    if not committed or committed.keys() - ends.keys():
        return None
    return sum(_lag(offset, ends[place]) for place, offset in committed.items())


def _lag(committed: int, end: int) -> int:
    # A log that was made anew ends below what was committed in the one before.
    return max(0, end - committed)


def _member(found: MemberDescription) -> Member:
    places = ((each.topic, each.partition) for each in found.assignment.topic_partitions)
    return Member(
        id=found.member_id,
        instance_id=found.group_instance_id,
        client_id=found.client_id,
        host=found.host.removeprefix("/"),  # as Java writes an address without a name
        partitions=tuple(sorted(places)),
    )


def _order(member: Member) -> tuple[str, str]:
    return member.client_id, member.id


def _partition(
    place: Place, told: _Told, ends: Mapping[Place, int], owner: str | None
) -> GroupPartition:
    committed, end = (told.committed or {}).get(place), ends.get(place)
    return GroupPartition(
        topic=place[0],
        number=place[1],
        committed=committed,
        end=end,
        lag=None if committed is None or end is None else _lag(committed, end),
        owner=owner,
    )
