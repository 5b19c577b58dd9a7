"""Consumer groups: a page of them, and one in detail."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Final, NamedTuple

from confluent_kafka import ConsumerGroupTopicPartitions

from app.log.errors import NotInLog
from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import Gaps, Group, GroupDetail, GroupPage, GroupPartition
from app.log.inspection.requests import InspectionRequests, positions_of, wait_for
from logbroker.client.admin import (
    DEAD,
    LATEST,
    GroupDescription,
    GroupMember,
    TopicAndPartition,
    committed_offsets,
    consumer_lag,
    describe_group_answer,
    leaders_of,
)

PARTITIONS_MAX: Final = 1_000
"""Partitions of one group in detail."""

MEMBERS_MAX: Final = 1_000
ENDS_MAX: Final = 10_000
"""Partitions of all groups of a page whose log ends are looked up."""

MIRROR_GROUP_PREFIX: Final = "logbroker-mirror-"
"""The default group of `logbroker mirror` is this and the id of the destination's cluster."""

MIRROR_CLIENT_ID: Final = "logbroker-mirror"
"""The client id of its members, also in a group with another name."""

_GROUPS: Final = "groups"
_STATE: Final = "state"
_COMMITTED: Final = "committed"
_LAG: Final = "lag"


class MirrorGroup(NamedTuple):
    """The group of a mirror; `destination` is the cluster that it copies to, if the id has it."""

    destination: str | None


def mirror_of(group_id: str, client_ids: Iterable[str]) -> MirrorGroup | None:
    """Return the mirror of a group; None if it is not a mirror's, as far as can be known."""
    if group_id.startswith(MIRROR_GROUP_PREFIX) and len(group_id) > len(MIRROR_GROUP_PREFIX):
        return MirrorGroup(group_id.removeprefix(MIRROR_GROUP_PREFIX))
    return MirrorGroup(None) if MIRROR_CLIENT_ID in client_ids else None


class _GroupState(NamedTuple):
    """The answers of a group's coordinator; None is unknown."""

    description: GroupDescription | None
    committed: Mapping[TopicAndPartition, int] | None

    @property
    def members(self) -> Sequence[GroupMember]:
        return () if self.description is None else self.description.members

    @property
    def owners(self) -> Mapping[TopicAndPartition, str]:
        return {} if self.description is None else self.description.owners

    @property
    def topic_partitions(self) -> list[TopicAndPartition]:
        return sorted((self.committed or {}).keys() | self.owners.keys())


def group_page(
    requests: InspectionRequests, *, after: str, containing: str, limit: int, deadline: Deadline
) -> GroupPage:
    """Return the first groups after `after` whose ids contain a text.

    Raises:
        LogUnavailable: no broker answers.
    """
    led = _led_partitions(requests, deadline)
    gaps = Gaps()
    matching = [group for group in _group_ids(requests, deadline, gaps) if containing in group]
    following = [group for group in matching if group > after]
    groups = _rows(requests, following[:limit], led, deadline, gaps)
    next_after = following[limit - 1] if len(following) > limit else None
    return GroupPage(groups, len(matching), next_after, gaps.all())


def mirror_groups(requests: InspectionRequests, limit: int, deadline: Deadline) -> GroupPage:
    """Return the groups of mirrors among `limit` groups, first those with a mirror's name.

    Raises:
        LogUnavailable: no broker answers.
    """
    led = _led_partitions(requests, deadline)
    gaps = Gaps()
    ids = _group_ids(requests, deadline, gaps)
    ids.sort(key=lambda group: mirror_of(group, ()) is None)
    rows = _rows(requests, ids[:limit], led, deadline, gaps)
    mirrors = tuple(sorted((each for each in rows if each.is_mirror), key=lambda each: each.id))
    return GroupPage(mirrors, len(mirrors), None, gaps.all())


def group_detail(requests: InspectionRequests, group: str, deadline: Deadline) -> GroupDetail:
    """Return one group.

    Raises:
        NotInLog: its coordinator does not know it.
        LogUnavailable: no broker answers.
    """
    if not group or "\0" in group:  # the client rejects these
        raise _unknown_group(group)
    led = _led_partitions(requests, deadline)
    gaps = Gaps()
    state = _group_states(requests, [group], deadline, gaps)[group]
    is_dead = state.description is not None and state.description.state == DEAD
    if is_dead and not state.topic_partitions:
        raise _unknown_group(group)
    topic_partitions = state.topic_partitions
    if len(topic_partitions) > PARTITIONS_MAX:
        gaps.add("partitions", f"limited to the first {PARTITIONS_MAX} of {len(topic_partitions)}")
    if len(state.members) > MEMBERS_MAX:
        gaps.add("members", f"limited to the first {MEMBERS_MAX} of {len(state.members)}")
    ends = _log_ends(requests, [state], led, deadline, gaps)
    owners, committed = state.owners, state.committed or {}
    members = sorted(state.members, key=lambda each: (each.client_id, each.member_id))
    return GroupDetail(
        group=_row(group, state, ends),
        members=tuple(map(_without_slash, members[:MEMBERS_MAX])),
        partitions=tuple(
            GroupPartition(
                topic=tp[0],
                number=tp[1],
                committed=committed.get(tp),
                end=ends.get(tp),
                lag=consumer_lag(committed.get(tp), ends.get(tp)),
                owner=owners.get(tp),
            )
            for tp in topic_partitions[:PARTITIONS_MAX]
        ),
        gaps=gaps.all(),
    )


def _without_slash(member: GroupMember) -> GroupMember:
    """Remove Java's sign of an address without a name."""
    return replace(member, host=member.host.removeprefix("/"))


def _unknown_group(group: str) -> NotInLog:
    return NotInLog(f"consumer group {group!r} does not exist")


def _group_ids(requests: InspectionRequests, deadline: Deadline, gaps: Gaps) -> list[str]:
    """Return the ids of all groups, sorted."""
    listing = wait_for(requests.groups(deadline), _GROUPS, deadline, gaps)
    if listing is None:
        return []
    for error in listing.errors or ():
        gaps.add(_GROUPS, str(error))
    return sorted({each.group_id for each in listing.valid or ()})


def _rows(
    requests: InspectionRequests,
    groups: Sequence[str],
    led: frozenset[TopicAndPartition],
    deadline: Deadline,
    gaps: Gaps,
) -> tuple[Group, ...]:
    states = _group_states(requests, groups, deadline, gaps)
    ends = _log_ends(requests, states.values(), led, deadline, gaps)
    return tuple(_row(group, each, ends) for group, each in states.items())


def _led_partitions(
    requests: InspectionRequests, deadline: Deadline
) -> frozenset[TopicAndPartition]:
    """Return the partitions that have a leader."""
    leaders = leaders_of(requests.metadata(deadline))
    return frozenset(tp for tp, leader in leaders.items() if leader is not None)


def _group_states(
    requests: InspectionRequests, groups: Sequence[str], deadline: Deadline, gaps: Gaps
) -> dict[str, _GroupState]:
    descriptions = requests.descriptions(groups, deadline)
    committed = requests.committed(groups, deadline)
    states = {}
    for group in groups:
        description = wait_for(descriptions[group], _STATE, deadline, gaps)
        states[group] = _GroupState(
            None if description is None else describe_group_answer(description),
            _committed(committed[group], deadline, gaps),
        )
    return states


def _committed(
    future: "Future[ConsumerGroupTopicPartitions]", deadline: Deadline, gaps: Gaps
) -> Mapping[TopicAndPartition, int] | None:
    answer = wait_for(future, _COMMITTED, deadline, gaps)
    if answer is None:
        return None
    offsets, errors = committed_offsets(answer.topic_partitions)
    for (topic, partition), error in errors.items():
        gaps.add(_COMMITTED, f"{topic}-{partition}: {error.str()}")
    return offsets


def _log_ends(
    requests: InspectionRequests,
    groups: Collection[_GroupState],
    led: frozenset[TopicAndPartition],
    deadline: Deadline,
    gaps: Gaps,
) -> dict[TopicAndPartition, int]:
    """Return the log ends of the partitions that groups read."""
    wanted = sorted({tp for state in groups for tp in state.topic_partitions} & led)
    if len(wanted) > ENDS_MAX:
        gaps.add(_LAG, f"too many partitions: the groups read more than {ENDS_MAX}")
    futures = requests.offsets(wanted[:ENDS_MAX], LATEST, deadline)
    ends = positions_of(futures, _LAG, deadline, gaps)
    return {tp: end.offset for tp, end in ends.items()}


def _row(group: str, state: _GroupState, ends: Mapping[TopicAndPartition, int]) -> Group:
    description = state.description
    mirror = mirror_of(group, {each.client_id for each in state.members})
    return Group(
        id=group,
        state=None if description is None else description.state,
        protocol=None if description is None else description.assignor,
        coordinator=None if description is None else description.coordinator,
        members=None if description is None else len(state.members),
        partitions=None if state.committed is None else len(state.topic_partitions),
        lag=_total_lag(state.committed, ends),
        is_mirror=mirror is not None,
        mirrors_to=None if mirror is None else mirror.destination,
    )


def _total_lag(
    committed: Mapping[TopicAndPartition, int] | None, ends: Mapping[TopicAndPartition, int]
) -> int | None:
    """Return the sum; None if one lag is unknown, or nothing is committed."""
    if not committed or committed.keys() - ends.keys():
        return None
    return sum(consumer_lag(offset, ends[tp]) or 0 for tp, offset in committed.items())
