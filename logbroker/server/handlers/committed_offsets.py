"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of consumer groups."""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final, NamedTuple

from kafka.protocol.consumer.group import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)

from logbroker.errors import (
    GroupSubscribed,
    OffsetMetadataTooLarge,
    RequestRefused,
    UnknownTopicOrPartition,
)
from logbroker.groups.messages import NO_GENERATION, Commit, MemberIdentity
from logbroker.groups.stored import NO_LEADER_EPOCH, CommittedOffset, TopicPartition
from logbroker.server.connection import Connection
from logbroker.server.groups.coordinator import GroupCoordinator, Offsets, check_has_name
from logbroker.server.handlers.lazy_response import LazyResponse, lazy_if_large
from logbroker.server.partition import Partitions
from logbroker.wire.error_codes import code_of

METADATA_CHARS_MAX: Final = 4096
"""Kafka's `offset.metadata.max.bytes`."""

FIRST_FETCH_WITH_GROUP_ERROR: Final = 2
FIRST_FETCH_OF_MANY_GROUPS: Final = 8

NOT_COMMITTED: Final = CommittedOffset(-1, NO_LEADER_EPOCH, "")

_FetchedTopic = OffsetFetchResponse.OffsetFetchResponseTopic
_FetchedPartition = _FetchedTopic.OffsetFetchResponsePartition
_FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
_FetchedGroupTopic = _FetchedGroup.OffsetFetchResponseTopics
_FetchedGroupPartition = _FetchedGroupTopic.OffsetFetchResponsePartitions
_CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
_DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic

PartitionsByTopic = Mapping[str, Collection[int]]


class CommittedOffsetHandlers:
    """Handles requests for committed offsets; responses wait until changes are durable."""

    def __init__(
        self, coordinator: GroupCoordinator, partitions: Partitions, now_ms: Callable[[], int]
    ) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._now_ms = now_ms

    def check_commit(self, request: OffsetCommitRequest) -> "CheckedCommit":
        """Return what can be committed, and an error for each other partition; any thread may."""
        codes: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.name, wanted.partition_index
                try:
                    offsets[key] = self._check(key, wanted)
                except RequestRefused as refusal:
                    codes[key] = code_of(refusal)
        return CheckedCommit(request, offsets, codes)

    def offset_commit(
        self,
        checked: "CheckedCommit",
        _connection: Connection,
        respond: Callable[[OffsetCommitResponse | LazyResponse], None],
    ) -> None:
        """Commit the offsets of existing partitions; others get an error each."""
        request, offsets, codes = checked

        def done(refusal: RequestRefused | None) -> None:
            code = 0 if refusal is None else code_of(refusal)
            items = _count_partitions(request)
            respond(lazy_if_large(items, lambda: _commit_response(request, codes, code)))

        if not offsets:
            done(None)
            return
        generation = request.generation_id_or_member_epoch
        commit = Commit(
            MemberIdentity(request.member_id or "", request.group_instance_id),
            NO_GENERATION if generation is None else generation,
        )
        self._coordinator.commit(request.group_id, commit, offsets, done)

    def offset_fetch(
        self,
        request: OffsetFetchRequest,
        _connection: Connection,
        respond: Callable[[OffsetFetchResponse | LazyResponse], None],
    ) -> None:
        """Return the offsets of a group, or (from v8) of many; all offsets if none is named."""
        version = request.version or 0
        # Without duplicates: a response may be thousands of times as long as the name.
        wanted = (
            {request.group_id: request.topics}
            if version < FIRST_FETCH_OF_MANY_GROUPS
            else {group.group_id: group.topics for group in request.groups}
        )
        groups: dict[str, _GroupOffsets] = {}

        def fetched(group_id: str, found: Offsets | RequestRefused) -> None:
            groups[group_id] = _GroupOffsets.of(wanted[group_id], found)
            if len(groups) == len(wanted):
                in_order = {each: groups[each] for each in wanted}
                items = sum(each.items for each in groups.values())
                respond(lazy_if_large(items, lambda: _fetch_response(version, in_order)))

        if not wanted:
            respond(_fetch_response(version, {}))
        for group_id in wanted:
            self._coordinator.fetch_offsets(group_id, partial(fetched, group_id))

    def offset_delete(
        self,
        request: OffsetDeleteRequest,
        _connection: Connection,
        respond: Callable[[OffsetDeleteResponse | LazyResponse], None],
    ) -> None:
        """Delete the offsets of existing partitions that no member is subscribed to."""
        try:
            check_has_name(request.group_id)
            group = self._coordinator.get(request.group_id)
        except RequestRefused as refusal:
            respond(_delete_response(request, {}, code_of(refusal)))
            return
        codes: dict[TopicPartition, int] = {}
        for topic in request.topics:
            is_read = group.subscribes(topic.name)
            for wanted in topic.partitions:
                key = topic.name, wanted.partition_index
                codes[key] = 0 if self._exists(key) else code_of(_unknown_partition(key))
                if is_read:
                    codes[key] = code_of(GroupSubscribed(topic.name))

        def done(refusal: RequestRefused | None) -> None:
            code = 0 if refusal is None else code_of(refusal)
            items = _count_partitions(request)
            respond(lazy_if_large(items, lambda: _delete_response(request, codes, code)))

        partitions = [key for key, code in codes.items() if code == 0]
        if partitions:
            self._coordinator.delete_offsets(request.group_id, partitions, done)
        else:
            done(None)

    def _check(self, key: TopicPartition, wanted: Any) -> CommittedOffset:
        """Return the offset to store for a partition of a request.

        A negative offset is stored as in Kafka: clients use it to reset a group.

        Raises:
            UnknownTopicOrPartition: the partition does not exist.
            OffsetMetadataTooLarge: the metadata is too long.
        """
        metadata, epoch = wanted.committed_metadata or "", wanted.committed_leader_epoch
        if not self._exists(key):
            raise _unknown_partition(key)
        if len(metadata) > METADATA_CHARS_MAX:
            raise OffsetMetadataTooLarge(
                f"metadata of {len(metadata)} characters; allowed is {METADATA_CHARS_MAX}"
            )
        return CommittedOffset(
            wanted.committed_offset,
            NO_LEADER_EPOCH if epoch is None else epoch,
            metadata,
            self._now_ms(),
        )

    def _exists(self, key: TopicPartition) -> bool:
        topic = self._partitions.view.topics.get(key[0])
        return topic is not None and 0 <= key[1] < topic.partitions


def _unknown_partition(key: TopicPartition) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"partition {key[0]}-{key[1]} does not exist")


def _count_partitions(request: OffsetCommitRequest | OffsetDeleteRequest) -> int:
    """Return the number of partitions in a request, and thus in its response, with duplicates."""
    return sum(len(topic.partitions) for topic in request.topics)


class CheckedCommit(NamedTuple):
    """A commit of offsets of existing partitions; `codes` are the errors of the others."""

    request: OffsetCommitRequest
    offsets: Mapping[TopicPartition, CommittedOffset]
    codes: Mapping[TopicPartition, int]


class _GroupOffsets(NamedTuple):
    """The outcome of OffsetFetch for one group; `requested` is None for all of its offsets."""

    code: int
    offsets: Offsets
    requested: PartitionsByTopic | None

    @classmethod
    def of(cls, topics: list[Any] | None, found: Offsets | RequestRefused) -> "_GroupOffsets":
        """Copy the requested offsets, since commits change those of a group."""
        requested = None if topics is None else _without_duplicates(topics)
        if isinstance(found, RequestRefused):
            return cls(code_of(found), {}, requested or {})
        if requested is None:
            return cls(0, dict(found), None)
        keys = ((topic, number) for topic, numbers in requested.items() for number in numbers)
        return cls(0, {key: found[key] for key in keys if key in found}, requested)

    @property
    def items(self) -> int:
        """The number of partitions, or of offsets."""
        if self.requested is None:
            return len(self.offsets)
        return sum(map(len, self.requested.values()))

    def describe(self, topic_type: Any, partition_type: Any, code: int) -> list[Any]:
        """Return the topics of a response, with `code` for each partition."""
        return [
            topic_type(
                name=topic,
                partitions=[
                    partition_type(
                        partition_index=number,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                        error_code=code,
                    )
                    for number in numbers
                    for committed in [self.offsets.get((topic, number), NOT_COMMITTED)]
                ],
            )
            for topic, numbers in self._by_topic().items()
        ]

    def _by_topic(self) -> PartitionsByTopic:
        if self.requested is not None:
            return self.requested
        found: dict[str, list[int]] = {}
        for topic, number in sorted(self.offsets):
            found.setdefault(topic, []).append(number)
        return found


def _without_duplicates(topics: list[Any]) -> PartitionsByTopic:
    partitions: dict[str, dict[int, None]] = {}
    for topic in topics:
        partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return partitions


def _fetch_response(version: int, groups: Mapping[str, _GroupOffsets]) -> OffsetFetchResponse:
    if version >= FIRST_FETCH_OF_MANY_GROUPS:
        fetched = [
            _FetchedGroup(
                group_id=group_id,
                topics=[]
                if group.code
                else group.describe(_FetchedGroupTopic, _FetchedGroupPartition, 0),
                error_code=group.code,
            )
            for group_id, group in groups.items()
        ]
        return OffsetFetchResponse(throttle_time_ms=0, error_code=0, topics=[], groups=fetched)
    (group,) = groups.values()
    # Version 1 has no error code for the group, only for each partition.
    each_code = group.code if version < FIRST_FETCH_WITH_GROUP_ERROR else 0
    topics = group.describe(_FetchedTopic, _FetchedPartition, each_code)
    return OffsetFetchResponse(throttle_time_ms=0, error_code=group.code, topics=topics, groups=[])


def _commit_response(
    request: OffsetCommitRequest, refused: Mapping[TopicPartition, int], code: int
) -> OffsetCommitResponse:
    topics = commit_results(request.topics, refused, code)
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)


def commit_results(
    topics: list[Any], refused: Mapping[TopicPartition, int], code: int
) -> list[_CommittedTopic]:
    """Return the results of OffsetCommit: `code` for each partition that is not in `refused`."""
    return [
        _CommittedTopic(
            name=topic.name,
            partitions=[
                _CommittedTopic.OffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=refused.get((topic.name, each.partition_index), code),
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


def _delete_response(
    request: OffsetDeleteRequest, codes: Mapping[TopicPartition, int], code: int
) -> OffsetDeleteResponse:
    topics = [] if code else deletion_results(request.topics, codes, 0)
    return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=topics)


def deletion_results(
    topics: list[Any], refused: Mapping[TopicPartition, int], code: int
) -> list[_DeletedTopic]:
    """Return the results of OffsetDelete: `code` for each partition that is not in `refused`."""
    return [
        _DeletedTopic(
            name=topic.name,
            partitions=[
                _DeletedTopic.OffsetDeleteResponsePartition(
                    partition_index=each.partition_index,
                    error_code=refused.get((topic.name, each.partition_index), code),
                )
                for each in topic.partitions
            ],
        )
        for topic in topics
    ]


def refused_fetch_results(topics: list[Any], code: int, *, of_many: bool) -> list[Any]:
    """Return the results of OffsetFetch with `code` for each partition.

    `of_many` is whether the request is of a version that has many groups.
    """
    offsets = _GroupOffsets(code, {}, _without_duplicates(topics))
    if of_many:
        return offsets.describe(_FetchedGroupTopic, _FetchedGroupPartition, code)
    return offsets.describe(_FetchedTopic, _FetchedPartition, code)
