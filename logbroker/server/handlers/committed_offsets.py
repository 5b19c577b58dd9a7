"""OffsetCommit, OffsetFetch and OffsetDelete: the committed offsets of consumer groups."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

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

    def offset_commit(
        self,
        request: OffsetCommitRequest,
        _connection: Connection,
        respond: Callable[[OffsetCommitResponse], None],
    ) -> None:
        """Commit the offsets of existing partitions; others get an error each."""
        codes: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for topic in request.topics:
            for wanted in topic.partitions:
                key = topic.name, wanted.partition_index
                try:
                    offsets[key] = self._check(key, wanted)
                except RequestRefused as refusal:
                    codes[key] = code_of(refusal)

        def done(refusal: RequestRefused | None) -> None:
            code = 0 if refusal is None else code_of(refusal)
            respond(_commit_response(request, {**dict.fromkeys(offsets, code), **codes}))

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
        respond: Callable[[OffsetFetchResponse], None],
    ) -> None:
        """Return the offsets of a group, or (from v8) of many; all offsets if none is named."""
        version = request.version or 0
        if version < FIRST_FETCH_OF_MANY_GROUPS:
            partitions = _requested_partitions(request.topics)
            self._coordinator.fetch_offsets(
                request.group_id,
                lambda found: respond(_fetch_response(version, partitions, found)),
            )
            return
        # Without duplicates: a response may be thousands of times as long as the name.
        wanted = {group.group_id: group for group in request.groups}
        groups: dict[str, _FetchedGroup] = {}

        def fetched(group: _FetchedGroup) -> None:
            groups[group.group_id] = group
            if len(groups) == len(wanted):
                respond(_fetch_response_of([groups[each] for each in wanted]))

        if not wanted:
            respond(_fetch_response_of([]))
        for group in wanted.values():
            self._fetch_group(group, fetched)

    def offset_delete(
        self,
        request: OffsetDeleteRequest,
        _connection: Connection,
        respond: Callable[[OffsetDeleteResponse], None],
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
            respond(_delete_response(request, codes, 0 if refusal is None else code_of(refusal)))

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

    def _fetch_group(
        self,
        group: OffsetFetchRequest.OffsetFetchRequestGroup,
        respond: Callable[[_FetchedGroup], None],
    ) -> None:
        partitions = _requested_partitions(group.topics)

        def found(result: Offsets | RequestRefused) -> None:
            if isinstance(result, RequestRefused):
                respond(
                    _FetchedGroup(group_id=group.group_id, topics=[], error_code=code_of(result))
                )
                return
            topics = [
                _FetchedGroupTopic(
                    name=topic,
                    partitions=[
                        _fetched(_FetchedGroupPartition, result, (topic, number), 0)
                        for number in numbers
                    ],
                )
                for topic, numbers in _partitions_of(partitions, result).items()
            ]
            respond(_FetchedGroup(group_id=group.group_id, topics=topics, error_code=0))

        self._coordinator.fetch_offsets(group.group_id, found)


def _unknown_partition(key: TopicPartition) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"partition {key[0]}-{key[1]} does not exist")


def _requested_partitions(topics: list[Any] | None) -> PartitionsByTopic | None:
    """Return the requested partitions without duplicates; None requests all."""
    if topics is None:
        return None
    partitions: dict[str, dict[int, None]] = {}
    for topic in topics:
        partitions.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return partitions


def _partitions_of(partitions: PartitionsByTopic | None, offsets: Offsets) -> PartitionsByTopic:
    if partitions is not None:
        return partitions
    found: dict[str, list[int]] = {}
    for topic, number in sorted(offsets):
        found.setdefault(topic, []).append(number)
    return found


def _fetched(kind: Any, offsets: Offsets, key: TopicPartition, code: int) -> Any:
    committed = offsets.get(key, NOT_COMMITTED)
    return kind(
        partition_index=key[1],
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _fetch_response(
    version: int, partitions: PartitionsByTopic | None, found: Offsets | RequestRefused
) -> OffsetFetchResponse:
    code, offsets = 0, found
    if isinstance(offsets, RequestRefused):
        code, offsets = code_of(offsets), {}
    # Version 1 has no error code for the group, only for each partition.
    each_code = code if version < FIRST_FETCH_WITH_GROUP_ERROR else 0
    return OffsetFetchResponse(
        throttle_time_ms=0,
        error_code=code,
        topics=[
            _FetchedTopic(
                name=topic,
                partitions=[
                    _fetched(_FetchedPartition, offsets, (topic, number), each_code)
                    for number in numbers
                ],
            )
            for topic, numbers in _partitions_of(partitions, offsets).items()
        ],
        groups=[],
    )


def _fetch_response_of(groups: list[_FetchedGroup]) -> OffsetFetchResponse:
    return OffsetFetchResponse(throttle_time_ms=0, error_code=0, topics=[], groups=groups)


def _commit_response(
    request: OffsetCommitRequest, codes: Mapping[TopicPartition, int]
) -> OffsetCommitResponse:
    topic_response = OffsetCommitResponse.OffsetCommitResponseTopic
    return OffsetCommitResponse(
        throttle_time_ms=0,
        topics=[
            topic_response(
                name=topic.name,
                partitions=[
                    topic_response.OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _delete_response(
    request: OffsetDeleteRequest, codes: Mapping[TopicPartition, int], code: int
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        error_code=code,
        throttle_time_ms=0,
        topics=[]
        if code
        else [
            _DeletedTopic(
                name=topic.name,
                partitions=[
                    _DeletedTopic.OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
