"""OffsetCommit, OffsetFetch and OffsetDelete: how far a consumer group has read."""

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
    InvalidRequest,
    OffsetMetadataTooLarge,
    RequestRefused,
    UnknownTopicOrPartition,
)
from logbroker.groups.exchanges import NO_GENERATION, Commit, MemberIdentity
from logbroker.groups.stored import NO_LEADER_EPOCH, CommittedOffset, TopicPartition
from logbroker.server.connection import Connection
from logbroker.server.groups.coordinator import GroupCoordinator, Offsets
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

Places = Mapping[str, Collection[int]]
"""Partitions by topic, as a request names them."""


class CommittedOffsetHandlers:
    """Answers once what was asked is durable, or is known not to be."""

    def __init__(self, coordinator: GroupCoordinator, partitions: Partitions) -> None:
        self._coordinator = coordinator
        self._partitions = partitions

    def offset_commit(
        self,
        request: OffsetCommitRequest,
        _connection: Connection,
        answer: Callable[[OffsetCommitResponse], None],
    ) -> None:
        """Set offsets of partitions that exist; the others are refused one by one."""
        codes: dict[TopicPartition, int] = {}
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for topic in request.topics:
            for wanted in topic.partitions:
                place = topic.name, wanted.partition_index
                try:
                    offsets[place] = self._check(place, wanted)
                except RequestRefused as refusal:
                    codes[place] = code_of(refusal)

        def done(refusal: RequestRefused | None) -> None:
            code = 0 if refusal is None else code_of(refusal)
            answer(_commit_response(request, {**dict.fromkeys(offsets, code), **codes}))

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
        answer: Callable[[OffsetFetchResponse], None],
    ) -> None:
        """The offsets of a group, or (from v8) of many; all there are where none is named."""
        version = request.version or 0
        if version < FIRST_FETCH_OF_MANY_GROUPS:
            places = _places(request.topics)
            self._coordinator.fetch_offsets(
                request.group_id,
                lambda found: answer(_fetch_response(version, places, found)),
            )
            return
        # Each once: the answer may be thousands of times as long as the name.
        wanted = {group.group_id: group for group in request.groups}
        groups: dict[str, _FetchedGroup] = {}

        def fetched(group: _FetchedGroup) -> None:
            groups[group.group_id] = group
            if len(groups) == len(wanted):
                answer(_fetch_response_of([groups[each] for each in wanted]))

        if not wanted:
            answer(_fetch_response_of([]))
        for group in wanted.values():
            self._fetch_group(group, fetched)

    def offset_delete(
        self,
        request: OffsetDeleteRequest,
        _connection: Connection,
        answer: Callable[[OffsetDeleteResponse], None],
    ) -> None:
        """Forget offsets of partitions that exist and that no member reads."""
        try:
            group = self._coordinator.get(request.group_id)
        except RequestRefused as refusal:
            answer(_delete_response(request, {}, code_of(refusal)))
            return
        codes: dict[TopicPartition, int] = {}
        for topic in request.topics:
            is_read = group.subscribes(topic.name)
            for wanted in topic.partitions:
                place = topic.name, wanted.partition_index
                codes[place] = 0 if self._exists(place) else code_of(_unknown(place))
                if is_read:
                    codes[place] = code_of(GroupSubscribed(topic.name))

        def done(refusal: RequestRefused | None) -> None:
            answer(_delete_response(request, codes, 0 if refusal is None else code_of(refusal)))

        places = [place for place, code in codes.items() if code == 0]
        if places:
            self._coordinator.delete_offsets(request.group_id, places, done)
        else:
            done(None)

    def _check(self, place: TopicPartition, wanted: Any) -> CommittedOffset:
        """The offset to keep for a place of a request.

        Raises:
            UnknownTopicOrPartition: there is no such place.
            OffsetMetadataTooLarge: the note is too long.
            InvalidRequest: the offset is negative.
        """
        metadata, epoch = wanted.committed_metadata or "", wanted.committed_leader_epoch
        if not self._exists(place):
            raise _unknown(place)
        if len(metadata) > METADATA_CHARS_MAX:
            raise OffsetMetadataTooLarge(
                f"metadata of {len(metadata)} characters; allowed is {METADATA_CHARS_MAX}"
            )
        if wanted.committed_offset < 0:
            raise InvalidRequest(f"offset is {wanted.committed_offset}; allowed is 0 and more")
        return CommittedOffset(
            wanted.committed_offset, NO_LEADER_EPOCH if epoch is None else epoch, metadata
        )

    def _exists(self, place: TopicPartition) -> bool:
        topic = self._partitions.view.topics.get(place[0])
        return topic is not None and 0 <= place[1] < topic.partitions

    def _fetch_group(
        self,
        group: OffsetFetchRequest.OffsetFetchRequestGroup,
        answer: Callable[[_FetchedGroup], None],
    ) -> None:
        places = _places(group.topics)

        def found(result: Offsets | RequestRefused) -> None:
            if isinstance(result, RequestRefused):
                answer(
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
                for topic, numbers in _wanted(places, result).items()
            ]
            answer(_FetchedGroup(group_id=group.group_id, topics=topics, error_code=0))

        self._coordinator.fetch_offsets(group.group_id, found)


def _unknown(place: TopicPartition) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"there is no partition {place[0]}-{place[1]}")


def _places(topics: list[Any] | None) -> Places | None:
    """What a request names, each once; none where it asks for everything."""
    if topics is None:
        return None
    places: dict[str, dict[int, None]] = {}
    for topic in topics:
        places.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return places


def _wanted(places: Places | None, offsets: Offsets) -> Places:
    if places is not None:
        return places
    found: dict[str, list[int]] = {}
    for topic, number in sorted(offsets):
        found.setdefault(topic, []).append(number)
    return found


def _fetched(kind: Any, offsets: Offsets, place: TopicPartition, code: int) -> Any:
    committed = offsets.get(place, NOT_COMMITTED)
    return kind(
        partition_index=place[1],
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        error_code=code,
    )


def _fetch_response(
    version: int, places: Places | None, found: Offsets | RequestRefused
) -> OffsetFetchResponse:
    code, offsets = 0, found
    if isinstance(offsets, RequestRefused):
        code, offsets = code_of(offsets), {}
    # Version 1 has no place for an error of the group but each partition's own.
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
            for topic, numbers in _wanted(places, offsets).items()
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
