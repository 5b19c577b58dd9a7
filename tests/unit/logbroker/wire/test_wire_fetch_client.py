from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as KafkaFetchRequest
from kafka.protocol.consumer import FetchResponse as KafkaFetchResponse

from logbroker.errors import MalformedRequest
from logbroker.wire.fetch import FetchPartition, decode_fetch_request
from logbroker.wire.fetch_client import (
    AbortedTransaction,
    FetchedPartition,
    FetchParameters,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)

VERSIONS = range(4, 18)
SERVED_HERE = range(4, 17)
SIZE_BYTES = 4

_Topic = KafkaFetchResponse.FetchableTopicResponse
_Partition = _Topic.PartitionData
_Aborted = _Partition.AbortedTransaction
_Endpoint = KafkaFetchResponse.NodeEndpoint

int8s = st.integers(-128, 127)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
# kafka-python reads the id of all zeros as none.
topic_ids = st.uuids().filter(lambda topic_id: topic_id.int != 0)

calls = st.builds(
    FetchParameters,
    topic=names,
    topic_id=topic_ids,
    partition=int32s,
    leader_epoch=int32s,
    offset=int64s,
    bytes_max=int32s,
    max_wait_ms=int32s,
    isolation_level=st.integers(0, 1),
)


@given(st.sampled_from(VERSIONS), int32s, st.none() | names, calls)
def test_kafka_python_decodes_the_request_as_encoded(
    version: int, correlation_id: int, client_id: str | None, call: FetchParameters
) -> None:
    frame = encode_fetch_request(version, correlation_id, client_id, call)

    read = KafkaFetchRequest.decode(frame, version=version, header=True, framed=True)

    assert (read.header.correlation_id, read.header.client_id) == (correlation_id, client_id)
    assert read.max_wait_ms == call.max_wait_ms
    assert (read.min_bytes, read.max_bytes) == (1, call.bytes_max)
    assert read.isolation_level == call.isolation_level
    assert read.replica_id == -1
    assert (read.session_id, read.session_epoch) == (0, -1)
    assert not read.forgotten_topics_data
    assert not read.rack_id
    ((topic, wanted),) = [(topic, each) for topic in read.topics for each in topic.partitions]
    assert (topic.topic == call.topic) == (version < 13) or not call.topic
    assert version < 13 or topic.topic_id == call.topic_id
    assert (wanted.partition, wanted.fetch_offset) == (call.partition, call.offset)
    assert wanted.partition_max_bytes == call.bytes_max
    assert version < 9 or wanted.current_leader_epoch == call.leader_epoch
    assert wanted.log_start_offset == -1
    assert wanted.last_fetched_epoch == -1


@given(st.sampled_from(VERSIONS), int32s, st.none() | names, calls)
def test_the_request_is_what_kafka_python_would_send(
    version: int, correlation_id: int, client_id: str | None, call: FetchParameters
) -> None:
    request_topic = KafkaFetchRequest.FetchTopic
    theirs = KafkaFetchRequest(
        max_wait_ms=call.max_wait_ms,
        min_bytes=1,
        max_bytes=call.bytes_max,
        isolation_level=call.isolation_level,
        topics=[
            request_topic(
                topic=call.topic,
                topic_id=call.topic_id,  # type: ignore[arg-type]  # absent in old versions
                partitions=[
                    request_topic.FetchPartition(
                        partition=call.partition,
                        current_leader_epoch=call.leader_epoch,
                        fetch_offset=call.offset,
                        partition_max_bytes=call.bytes_max,
                    )
                ],
            )
        ],
        forgotten_topics_data=[],
    )
    theirs.API_VERSION = version
    theirs.with_header(correlation_id, client_id)  # type: ignore[arg-type]  # is nullable

    ours = encode_fetch_request(version, correlation_id, client_id, call)

    assert ours == bytes(theirs.encode(version=version, header=True, framed=True))


@given(st.sampled_from(SERVED_HERE), int32s, calls)
def test_the_broker_decodes_the_request_as_encoded(
    version: int, correlation_id: int, call: FetchParameters
) -> None:
    frame = encode_fetch_request(version, correlation_id, "client", call)

    read = decode_fetch_request(memoryview(frame), SIZE_BYTES, len(frame))

    assert (read.correlation_id, read.max_wait_ms) == (correlation_id, call.max_wait_ms)
    assert read.partitions == [
        FetchPartition(
            call.topic if version < 13 else None,
            call.topic_id if version >= 13 else None,
            call.partition,
            call.leader_epoch if version >= 9 else -1,
            call.offset,
            call.bytes_max,
        )
    ]


aborted_transactions = st.lists(st.builds(AbortedTransaction, int64s, int64s), max_size=3)
partitions = st.builds(
    FetchedPartition,
    topic=names,
    topic_id=topic_ids,
    partition=int32s,
    error_code=int16s,
    high_watermark=int64s,
    last_stable_offset=int64s,
    log_start_offset=int64s,
    aborted=aborted_transactions.map(tuple),
    preferred_replica=int32s,
    records=st.binary(max_size=40).map(memoryview),
)
answers = st.builds(FetchResponse, int32s, int32s, int16s, st.lists(partitions, max_size=3))


def answer_frame(
    version: int, answer: FetchResponse, *, is_null: bool = False, has_tags: bool = False
) -> memoryview:
    """An answer as kafka-python has it, without its size prefix; each partition in a topic."""
    tags: dict[str, Any] = {}
    endpoints = []
    if has_tags and version >= 12:
        epoch_end = _Partition.EpochEndOffset(version=version, epoch=3, end_offset=4)
        leader = _Partition.LeaderIdAndEpoch(version=version, leader_id=7, leader_epoch=8)
        tags = {"diverging_epoch": epoch_end, "current_leader": leader}
    if has_tags and version >= 16:
        endpoints = [_Endpoint(version=version, node_id=7, host="host", port=9, rack="rack")]
    message = KafkaFetchResponse(
        version=version,
        throttle_time_ms=answer.throttle_ms,
        error_code=answer.error_code,
        session_id=0,
        responses=[
            _Topic(
                version=version,
                topic=each.topic,  # type: ignore[arg-type]  # absent in new versions
                topic_id=each.topic_id,  # type: ignore[arg-type]  # absent in old versions
                partitions=[_partition_data(version, each, tags, is_null=is_null)],
            )
            for each in answer.partitions
        ],
        node_endpoints=endpoints,
    )
    message.with_header(answer.correlation_id)
    return memoryview(bytes(message.encode(header=True)))


def _partition_data(
    version: int, fetched: FetchedPartition, tags: dict[str, Any], *, is_null: bool
) -> Any:
    return _Partition(
        version=version,
        partition_index=fetched.partition,
        error_code=fetched.error_code,
        high_watermark=fetched.high_watermark,
        last_stable_offset=fetched.last_stable_offset,
        log_start_offset=fetched.log_start_offset,
        aborted_transactions=(
            None
            if is_null
            else [
                _Aborted(version=version, producer_id=each[0], first_offset=each[1])
                for each in fetched.aborted
            ]
        ),
        preferred_read_replica=fetched.preferred_replica,
        records=None if is_null else bytes(fetched.records),
        **tags,
    )


def as_decoded(version: int, answer: FetchResponse, *, is_null: bool = False) -> FetchResponse:
    """The answer without what its version has no place for."""
    return answer._replace(
        error_code=answer.error_code if version >= 7 else 0,
        partitions=[
            each._replace(
                topic=each.topic if version < 13 else None,
                topic_id=each.topic_id if version >= 13 else None,
                log_start_offset=each.log_start_offset if version >= 5 else -1,
                preferred_replica=each.preferred_replica if version >= 11 else -1,
                aborted=() if is_null else each.aborted,
                records=memoryview(b"") if is_null else each.records,
            )
            for each in answer.partitions
        ],
    )


@given(st.sampled_from(VERSIONS), answers, st.booleans(), st.booleans())
def test_a_response_of_kafka_python_is_decoded_as_encoded(
    version: int, answer: FetchResponse, is_null: bool, has_tags: bool
) -> None:
    frame = answer_frame(version, answer, is_null=is_null, has_tags=has_tags)

    assert decode_fetch_response(version, frame) == as_decoded(version, answer, is_null=is_null)


def full_answer() -> FetchResponse:
    return FetchResponse(
        correlation_id=1,
        throttle_ms=2,
        error_code=0,
        partitions=[
            FetchedPartition(
                topic="topic",
                topic_id=UUID(int=number + 1),
                partition=number,
                error_code=0,
                high_watermark=10,
                last_stable_offset=9,
                log_start_offset=3,
                aborted=(AbortedTransaction(100, 4), AbortedTransaction(200, 5)),
                preferred_replica=-1,
                records=memoryview(b"record data"),
            )
            for number in range(2)
        ],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_truncated_response_is_malformed(version: int) -> None:
    frame = answer_frame(version, full_answer(), has_tags=True)

    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            decode_fetch_response(version, frame[:end])


@given(st.sampled_from(VERSIONS), st.binary(max_size=200))
def test_garbage_is_decoded_or_malformed(version: int, garbage: bytes) -> None:
    try:
        answer = decode_fetch_response(version, memoryview(garbage))
    except MalformedRequest:
        return
    assert sum(len(each.records) for each in answer.partitions) <= len(garbage)


@pytest.mark.parametrize("version", VERSIONS)
def test_records_stay_where_they_were_received(version: int) -> None:
    frame = memoryview(bytearray(answer_frame(version, full_answer())))

    (first, _) = decode_fetch_response(version, frame).partitions

    assert bytes(first.records) == b"record data"
    assert first.records.obj is frame.obj
