from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest as KafkaFetchRequest
from kafka.protocol.consumer import FetchResponse as KafkaFetchResponse

from logbroker.errors import MalformedRequest, ProtocolViolation, UnsupportedRequest
from logbroker.wire.fetch import (
    FetchOutcome,
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
    encode_fetch_response,
)
from tests.support.property_examples import examples

VERSIONS = range(4, 17)
BY_NAME = [version for version in VERSIONS if version < 13]
BY_ID = [version for version in VERSIONS if version >= 13]
GAP = b"other bytes"

_Topic = KafkaFetchRequest.FetchTopic
_Forgotten = KafkaFetchRequest.ForgottenTopic
_State = KafkaFetchRequest.ReplicaState

int8s = st.integers(-128, 127)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
# kafka-python reads the id of all zeros as none.
topic_ids = st.uuids().filter(lambda topic_id: topic_id.int != 0)


@dataclass(frozen=True)
class Wanted:
    partition: int
    epoch: int
    offset: int
    bytes_max: int


@dataclass
class MemorySpan:
    """Stands where a span of a segment file does: the encoder may know its length alone."""

    data: bytes

    @property
    def length(self) -> int:
        return len(self.data)


topics = st.lists(
    st.tuples(
        names,
        topic_ids,
        st.lists(st.builds(Wanted, int32s, int32s, int64s, int32s), max_size=3),
    ),
    max_size=3,
)
Topics = list[tuple[str, UUID, list[Wanted]]]

TWO_TOPICS: Topics = [
    ("a", UUID(int=1), [Wanted(0, -1, 10, 100), Wanted(1, -1, 20, 200)]),
    ("b", UUID(int=2), [Wanted(7, -1, 30, 300)]),
]


def request_of(
    version: int,
    topics: Topics,
    *,
    correlation_id: int = 1,
    client_id: str | None = "consumer",
    limits: tuple[int, int, int] = (500, 1, 2**20),
    session: tuple[int, int] = (0, -1),
    isolation_level: int = 1,
    forgotten: list[tuple[str, UUID, list[int]]] | None = None,
    rack: str = "",
    cluster_id: str | None = None,
    replica: tuple[int, int] | None = None,
) -> bytes:
    request = KafkaFetchRequest(
        version=version,
        cluster_id=cluster_id,
        replica_id=-1,
        replica_state=(
            _State(  # type: ignore[arg-type]  # which is nullable
                version=version, replica_id=replica[0], replica_epoch=replica[1]
            )
            if replica and version >= 15
            else None
        ),
        max_wait_ms=limits[0],
        min_bytes=limits[1],
        max_bytes=limits[2],
        isolation_level=isolation_level,
        session_id=session[0],
        session_epoch=session[1],
        topics=[
            _Topic(
                version=version,
                topic=name,
                topic_id=topic_id,
                partitions=[
                    _Topic.FetchPartition(
                        version=version,
                        partition=wanted.partition,
                        current_leader_epoch=wanted.epoch,
                        fetch_offset=wanted.offset,
                        last_fetched_epoch=-1,
                        log_start_offset=-1,
                        partition_max_bytes=wanted.bytes_max,
                    )
                    for wanted in partitions
                ],
            )
            for name, topic_id, partitions in topics
        ],
        forgotten_topics_data=[
            _Forgotten(topic=name, topic_id=topic_id, partitions=partitions)
            for name, topic_id, partitions in forgotten or ()
        ],
        rack_id=rack,
    )
    request.with_header(
        correlation_id=correlation_id,
        client_id=client_id,  # type: ignore[arg-type]  # which is nullable
    )
    return bytes(request.encode(version=version, header=True))


def decoded(frame: bytes) -> FetchRequest:
    buffer = memoryview(bytearray(GAP + frame + GAP))
    return decode_fetch_request(buffer, len(GAP), len(GAP) + len(frame))


def partitions_of(version: int, topics: Topics) -> list[FetchPartition]:
    return [
        FetchPartition(
            name if version < 13 else None,
            topic_id if version >= 13 else None,
            wanted.partition,
            wanted.epoch if version >= 9 else -1,
            wanted.offset,
            wanted.bytes_max,
        )
        for name, topic_id, partitions in topics
        for wanted in partitions
    ]


@given(
    st.sampled_from(VERSIONS),
    topics,
    int32s,
    st.none() | names,
    st.tuples(int32s, int32s, int32s),
    st.tuples(int32s, int32s),
    int8s,
    st.lists(st.tuples(names, topic_ids, st.lists(int32s, max_size=3)), max_size=3),
    names,
    st.none() | names,
    st.none() | st.tuples(int32s, int64s),
)
def test_requests_of_kafka_python_are_decoded(
    version: int,
    topics: Topics,
    correlation_id: int,
    client_id: str | None,
    limits: tuple[int, int, int],
    session: tuple[int, int],
    isolation_level: int,
    forgotten: list[tuple[str, UUID, list[int]]],
    rack: str,
    cluster_id: str | None,
    replica: tuple[int, int] | None,
) -> None:
    frame = request_of(
        version,
        topics,
        correlation_id=correlation_id,
        client_id=client_id,
        limits=limits,
        session=session,
        isolation_level=isolation_level,
        forgotten=forgotten,
        rack=rack,
        cluster_id=cluster_id,
        replica=replica,
    )
    assert decoded(frame) == FetchRequest(
        correlation_id,
        version,
        *limits,
        *(session if version >= 7 else (0, -1)),
        partitions_of(version, topics),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed(version: int) -> None:
    frame = request_of(
        version,
        TWO_TOPICS,
        forgotten=[("c", UUID(int=3), [1, 2])],
        rack="r",
        cluster_id="c",
        replica=(1, 2),
    )
    whole = decoded(frame)
    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            decoded(frame[:end])
    assert decoded(frame + b"stray bytes, which Kafka passes over") == whole


@examples(500)
@given(st.sampled_from(VERSIONS), st.data())
def test_any_bytes_are_a_request_or_a_violation(version: int, data: st.DataObject) -> None:
    frame = bytearray(request_of(version, TWO_TOPICS, rack="r"))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    # The dispatcher gives each API its own frames.
    frame[:2] = b"\0\1"
    try:
        request = decoded(bytes(frame))
    except ProtocolViolation:
        return
    assert len(request.partitions) <= len(frame)


@pytest.mark.parametrize("version", [3, 17, 18, -1])
def test_other_versions_are_rejected(version: int) -> None:
    frame = bytearray(request_of(12, TWO_TOPICS))
    frame[2:4] = version.to_bytes(2, "big", signed=True)
    with pytest.raises(UnsupportedRequest, match=f"API 1 version {version}"):
        decoded(bytes(frame))


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 1, 1000])
def test_a_hostile_count_allocates_nothing(count: int) -> None:
    legacy = bytearray(request_of(4, []))
    assert legacy[-4:] == bytes(4)
    legacy[-4:] = count.to_bytes(4, "big")
    with pytest.raises(MalformedRequest):
        decoded(bytes(legacy))
    flexible = request_of(12, [])
    assert flexible[-4:] == b"\1\1\1\0"
    varint = bytes((count >> shift) & 0x7F | 0x80 for shift in (0, 7, 14, 21))
    for at in (-4, -3):  # topics, forgotten topics
        hostile = flexible[:at] + varint + bytes((count >> 28,)) + flexible[at + 1 :]
        with pytest.raises(MalformedRequest, match="items of 3 bytes or more"):
            decoded(hostile)


def answer_of(parts: list[Any]) -> bytes:
    whole = b"".join(part if isinstance(part, bytes) else part.data for part in parts)
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    return whole


throttle_times = st.integers(0, 2**31 - 1)

outcomes: st.SearchStrategy[tuple[int, int, int, Any]] = st.tuples(
    st.integers(-1, 120),
    int64s,
    int64s,
    st.none() | st.builds(MemorySpan, st.binary(max_size=300)),
)


@given(st.sampled_from(VERSIONS), topics, int32s, st.integers(-1, 120), throttle_times, st.data())
def test_kafka_python_decodes_the_response(
    version: int,
    topics: Topics,
    correlation_id: int,
    error_code: int,
    throttle_ms: int,
    data: st.DataObject,
) -> None:
    request = decoded(request_of(version, topics, correlation_id=correlation_id))
    results: list[Any] = [
        FetchOutcome(partition, *data.draw(outcomes)) for partition in request.partitions
    ]
    parts = encode_fetch_response(request, results, error_code, throttle_ms)
    spans = [part for part in parts if not isinstance(part, bytes)]
    assert spans == [result.records for result in results if result.records and result.records.data]
    answer = answer_of(parts)
    response = KafkaFetchResponse.decode(answer, version=version, header=True, framed=True)
    assert bytes(response.encode(header=True, framed=True)) == answer
    assert response.header.correlation_id == correlation_id
    assert (response.throttle_time_ms, response.session_id) == (throttle_ms, 0)
    assert response.error_code == (error_code if version >= 7 else response.error_code)
    assert [
        (
            topic.topic if version < 13 else topic.topic_id,
            found.partition_index,
            found.error_code,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
            found.aborted_transactions,
            found.preferred_read_replica,
            found.records,
        )
        for topic in response.responses
        for found in topic.partitions
    ] == [
        (
            wanted.topic if version < 13 else wanted.topic_id,
            wanted.partition,
            code,
            high_watermark,
            high_watermark,
            log_start if version >= 5 else -1,
            None,
            -1,
            records.data if records else b"",
        )
        for wanted, code, high_watermark, log_start, records in results
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_spans_lie_between_bytes_and_none_is_read(version: int) -> None:
    class Unreadable:
        length = 1000

    request = decoded(request_of(version, TWO_TOPICS))
    first: Any = Unreadable()
    second: Any = Unreadable()
    wanted = request.partitions
    parts = encode_fetch_response(
        request,
        [
            FetchOutcome(wanted[0], 0, 50, 0, first),
            FetchOutcome(wanted[1], 3, -1, -1, None),
            FetchOutcome(wanted[2], 0, 50, 0, second),
        ],
    )
    kinds = [part if isinstance(part, Unreadable) else bytes for part in parts]
    end = [bytes] if version >= 12 else []
    assert kinds == [bytes, first, bytes, second, *end]
    size = sum(len(part) if isinstance(part, bytes) else part.length for part in parts)
    head = parts[0]
    assert isinstance(head, bytes)
    assert int.from_bytes(head[:4], "big") == size - 4


def test_a_topic_without_a_name_is_answered() -> None:
    request = decoded(request_of(12, [("", UUID(int=1), [Wanted(0, -1, 0, 1)])]))
    answer = answer_of(
        encode_fetch_response(request, [FetchOutcome(request.partitions[0], 3, -1, -1, None)])
    )
    response = KafkaFetchResponse.decode(answer, version=12, header=True, framed=True)
    assert [topic.topic for topic in response.responses] == [""]
