from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest as KafkaProduceRequest
from kafka.protocol.producer import ProduceResponse as KafkaProduceResponse

from logbroker.errors import MalformedRequest, ProtocolViolation, UnsupportedRequest
from logbroker.wire.produce import (
    TEMPLATE_BYTES_MAX,
    TEMPLATES_MAX,
    ProduceBatch,
    ProduceDecoder,
    ProduceOutcome,
    ProduceRequest,
    decode_produce_request,
    encode_produce_response,
)
from tests.support.property_examples import examples

VERSIONS = range(3, 12)
FIRST_FLEXIBLE = 9
API_KEY_BYTES = 2
GAP = b"other bytes"
"""Lies before and behind each frame, as other requests do in a connection's buffer."""

Topics = list[tuple[str, list[tuple[int, bytes | None]]]]

_Topic = KafkaProduceRequest.TopicProduceData

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
records = st.none() | st.binary(max_size=300)
topics = st.lists(
    st.tuples(names, st.lists(st.tuples(int32s, records), max_size=3)),
    max_size=3,
)


def request_of(
    version: int,
    topics: Topics,
    *,
    correlation_id: int = 1,
    client_id: str | None = "producer",
    transactional_id: str | None = None,
    acks: int = 1,
    timeout_ms: int = 30_000,
) -> bytes:
    request = KafkaProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            _Topic(
                version=version,
                name=name,
                partition_data=[
                    _Topic.PartitionProduceData(version=version, index=index, records=data)
                    for index, data in partitions
                ],
            )
            for name, partitions in topics
        ],
    )
    request.with_header(
        correlation_id=correlation_id,
        client_id=client_id,  # type: ignore[arg-type]  # which is nullable
    )
    return bytes(request.encode(version=version, header=True))


def single(version: int, data: bytes = b"batch", partition: int = 0, **fields: Any) -> bytes:
    return request_of(version, [("events", [(partition, data)])], **fields)


def decoded(
    frame: bytes,
    decode: Callable[[memoryview, int, int], ProduceRequest] = decode_produce_request,
) -> tuple[ProduceRequest, memoryview]:
    buffer = memoryview(bytearray(GAP + frame + GAP))
    return decode(buffer, len(GAP), len(GAP) + len(frame)), buffer


def fields_of(request: ProduceRequest, buffer: memoryview) -> tuple[object, ...]:
    return (
        request.correlation_id,
        request.api_version,
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        [
            (topic, index, bytes_of(buffer, start, end))
            for topic, index, start, end in request.batches
        ],
    )


def bytes_of(buffer: memoryview, start: int, end: int) -> bytes | None:
    return None if start == end == -1 else bytes(buffer[start:end])


@given(
    st.sampled_from(VERSIONS),
    topics,
    int32s,
    st.none() | names,
    st.none() | names,
    st.sampled_from((-1, 0, 1)),
    int32s,
)
def test_requests_of_kafka_python_are_decoded(
    version: int,
    topics: Topics,
    correlation_id: int,
    client_id: str | None,
    transactional_id: str | None,
    acks: int,
    timeout_ms: int,
) -> None:
    frame = request_of(
        version,
        topics,
        correlation_id=correlation_id,
        client_id=client_id,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
    )
    batches = [(name, index, data) for name, batches in topics for index, data in batches]
    for decode in (decode_produce_request, ProduceDecoder().decode):
        request, buffer = decoded(frame, decode)
        assert fields_of(request, buffer) == (
            correlation_id,
            version,
            transactional_id,
            acks,
            timeout_ms,
            batches,
        )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_cut_at_any_byte_is_malformed(version: int) -> None:
    frame = request_of(version, [("a", [(0, b"one"), (1, None)]), ("b", [(2, b"two")])])
    primed = ProduceDecoder()
    primed.decode(memoryview(single(version)), 0, len(single(version)))
    for end in range(len(frame)):
        for decode in (decode_produce_request, primed.decode):
            with pytest.raises(MalformedRequest):
                decoded(frame[:end], decode)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_repeated_request_cut_at_any_byte_is_malformed(version: int) -> None:
    frame = single(version)
    decoder = ProduceDecoder()
    decoded(frame, decoder.decode)
    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            decoded(frame[:end], decoder.decode)


@examples(500)
@given(st.sampled_from(VERSIONS), st.data())
def test_a_template_decodes_any_bytes_like_the_general_path(
    version: int, data: st.DataObject
) -> None:
    size = data.draw(st.sampled_from((0, 5, 126, 127, 128, 300)))
    frame = bytearray(single(version, b"b" * size))
    decoder = ProduceDecoder()
    decoded(bytes(frame), decoder.decode)
    for _ in range(data.draw(st.integers(1, 3))):
        # The first two bytes are the API key: the dispatcher passes only frames of Produce.
        index = data.draw(st.integers(API_KEY_BYTES, len(frame) - 1))
        frame[index] = data.draw(st.integers(0, 255))
    seen: list[object] = []
    for decode in (decode_produce_request, decoder.decode):
        try:
            seen.append(fields_of(*decoded(bytes(frame), decode)))
        except ProtocolViolation as violation:
            seen.append((type(violation), str(violation)))
    assert seen[0] == seen[1]


@pytest.mark.parametrize("version", [2, 12, 13, -1])
def test_other_versions_are_rejected(version: int) -> None:
    frame = bytearray(single(8))
    frame[2:4] = version.to_bytes(2, "big", signed=True)
    decoder = ProduceDecoder()
    decoded(single(8), decoder.decode)
    with pytest.raises(UnsupportedRequest, match=f"API 0 version {version}"):
        decoded(bytes(frame), decoder.decode)


@pytest.mark.parametrize("count", [2**31 - 1, 2**31, 2**32 - 1, 1000])
def test_a_hostile_count_allocates_nothing(count: int) -> None:
    legacy = bytearray(request_of(8, []))
    assert legacy[-4:] == bytes(4)
    legacy[-4:] = count.to_bytes(4, "big")
    with pytest.raises(MalformedRequest):
        decoded(bytes(legacy))
    flexible = bytearray(request_of(9, []))
    assert flexible[-2:] == b"\1\0"
    flexible[-2:-1] = bytes((count >> shift) & 0x7F | 0x80 for shift in (0, 7, 14, 21)) + bytes(
        (count >> 28,)
    )
    with pytest.raises(MalformedRequest, match=r"items of 3 bytes or more"):
        decoded(bytes(flexible))


def test_unknown_tags_are_skipped() -> None:
    tags = b"\2\5\3abc\x90\x01\0"  # tag 5: three bytes; tag 144: none
    plain = single(9)
    header_end = 8 + 2 + len("producer")
    assert plain[header_end : header_end + 1] == b"\0"
    assert plain[-3:] == bytes(3)
    tagged = plain[:header_end] + tags + plain[header_end + 1 : -3] + tags * 3
    decoder = ProduceDecoder()
    for decode in (decode_produce_request, decoder.decode, decoder.decode):
        request, buffer = decoded(tagged, decode)
        assert fields_of(request, buffer)[5] == [("events", 0, b"batch")]
        assert request.template is None


def test_a_null_topic_and_a_text_that_is_no_utf8_are_malformed() -> None:
    frame = single(8)
    at = frame.index(b"\0\x06events")
    for wrong in (b"\xff\xff", b"\xff\xfe", b"\0\x06\xff\xff\xff\xff\xff\xff"):
        with pytest.raises(MalformedRequest):
            decoded(frame[:at] + wrong + frame[at + 8 :])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_producer_of_many_partitions_hits_a_template_for_each(version: int) -> None:
    decoder = ProduceDecoder()
    first = [
        decoded(single(version, partition=partition), decoder.decode)[0].template
        for partition in range(16)
    ]
    assert [template.partition for template in first if template] == list(range(16))
    for number in range(3):
        for partition in range(16):
            data = bytes((number,)) * (60 + 40 * number)
            frame = single(version, data, partition, correlation_id=number)
            request, buffer = decoded(frame, decoder.decode)
            assert request.template is first[partition]
            assert request.correlation_id == number
            assert request.batches == [
                ProduceBatch("events", partition, request.start, request.end)
            ]
            assert buffer[request.start : request.end] == data


@pytest.mark.parametrize("version", [8, 9])
def test_the_log_cached_in_a_template_is_kept_for_the_next_request(version: int) -> None:
    decoder = ProduceDecoder()
    template = decoded(single(version), decoder.decode)[0].template
    assert template is not None
    assert template.cached_partition is None
    template.cached_partition = "the log of events-0"
    # Three widths of a compact length, there and back: they share what is known.
    for size in (5, 200, 20_000, 5, 200):
        request, _ = decoded(single(version, b"b" * size), decoder.decode)
        assert request.template is template


def test_requests_that_differ_in_more_than_their_batch_have_templates_of_their_own() -> None:
    decoder = ProduceDecoder()
    requests = [
        request_of(9, [("events", [(0, b"b")])], acks=1),
        request_of(9, [("events", [(0, b"b")])], acks=-1),
        request_of(9, [("events", [(1, b"b")])], acks=1),
        request_of(9, [("things", [(0, b"b")])], acks=1),
        request_of(9, [("a longer name", [(0, b"b")])], acks=1),
        request_of(10, [("events", [(0, b"b")])], acks=1),
    ]
    templates = {id(decoded(frame, decoder.decode)[0].template): frame for frame in requests}
    assert len(templates) == len(requests)


@pytest.mark.parametrize(
    "frame",
    [
        request_of(9, []),
        request_of(9, [("events", [(0, None)])]),
        request_of(9, [("events", [(0, b"a"), (1, b"b")])]),
        request_of(9, [("events", [(0, b"a")]), ("empty", [])]),
        request_of(8, [("events", [(0, b"a")]), ("empty", [])]),
        request_of(9, [("events", [(0, b"a")])], client_id="c" * TEMPLATE_BYTES_MAX),
    ],
)
def test_requests_with_several_batches_have_no_template(frame: bytes) -> None:
    decoder = ProduceDecoder()
    for _ in range(2):
        request, buffer = decoded(frame, decoder.decode)
        assert request.template is None
        assert fields_of(request, buffer) == fields_of(*decoded(frame))


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes_after_a_request_are_skipped(version: int) -> None:
    decoder = ProduceDecoder()
    frame = single(version)
    for tail in (b"", b"\0", b"\0\0\0", b"stray"):
        request, buffer = decoded(frame + tail, decoder.decode)
        assert fields_of(request, buffer) == fields_of(*decoded(frame))


def test_an_overlong_length_is_decoded_without_a_template() -> None:
    frame = single(9)
    at = frame.index(b"\x06batch")
    padded = frame[:at] + b"\x86\x80\0batch" + frame[at + 6 :]
    decoder = ProduceDecoder()
    decoded(frame, decoder.decode)
    request, buffer = decoded(padded, decoder.decode)
    assert request.template is None
    assert fields_of(request, buffer)[5] == [("events", 0, b"batch")]


def test_templates_are_bounded() -> None:
    decoder = ProduceDecoder()
    for partition in range(TEMPLATES_MAX + 5):
        decoded(single(9, partition=partition), decoder.decode)
    assert len(decoder._templates) == 5
    for size in range(1, 20):
        frame = request_of(9, [("t" * size, [(0, b"b")])])
        decoded(frame, decoder.decode)
    assert len(decoder._shapes) == 4


def outcome_fields(version: int, outcome: ProduceOutcome) -> tuple[object, ...]:
    """What kafka-python can know in this version."""
    return (
        outcome.error_code,
        outcome.base_offset,
        outcome.log_append_time_ms,
        outcome.log_start_offset if version >= 5 else -1,
        outcome.error_message if version >= 8 else None,
        list(outcome.record_errors) if version >= 8 else [],
    )


def answered(version: int, answer: bytes) -> tuple[int, list[Any]]:
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    response = KafkaProduceResponse.decode(answer, version=version, header=True, framed=True)
    assert bytes(response.encode(header=True, framed=True)) == answer
    assert response.throttle_time_ms == 0
    found = [
        (
            topic.name,
            partition.index,
            (
                partition.error_code,
                partition.base_offset,
                partition.log_append_time_ms,
                partition.log_start_offset,
                partition.error_message,
                [
                    (error.batch_index, error.batch_index_error_message)
                    for error in partition.record_errors or []
                ],
            ),
        )
        for topic in response.responses
        for partition in topic.partition_responses
    ]
    return response.header.correlation_id, found


outcomes = st.builds(
    ProduceOutcome,
    st.integers(-1, 120),
    int64s,
    int64s,
    int64s,
    st.none() | names,
    st.lists(st.tuples(st.integers(0, 2**31 - 1), names), max_size=3),
)


@given(st.sampled_from(VERSIONS), topics, int32s, st.data())
def test_kafka_python_decodes_the_response(
    version: int, topics: Topics, correlation_id: int, data: st.DataObject
) -> None:
    request, _ = decoded(request_of(version, topics, correlation_id=correlation_id))
    count = len(request.batches)
    results = data.draw(st.lists(outcomes, min_size=count, max_size=count))
    answer = encode_produce_response(request, results)
    expected = [
        (batch.topic, batch.partition, outcome_fields(version, outcome))
        for batch, outcome in zip(request.batches, results, strict=True)
    ]
    assert answered(version, answer) == (correlation_id, expected)


@given(st.sampled_from(VERSIONS), names, int32s, int32s, outcomes)
def test_a_template_encodes_the_same_response_as_the_general_path(
    version: int, topic: str, partition: int, correlation_id: int, outcome: ProduceOutcome
) -> None:
    frame = request_of(version, [(topic, [(partition, b"b")])], correlation_id=correlation_id)
    general, _ = decoded(frame)
    request, _ = decoded(frame, ProduceDecoder().decode)
    template = request.template
    assert template is not None
    assert (template.topic, template.partition) == (topic, partition)
    expected = encode_produce_response(general, [outcome])
    assert template.encode_outcome(correlation_id, outcome) == expected
    assert encode_produce_response(request, [outcome]) == expected
    success = ProduceOutcome(0, *outcome[1:4])
    assert template.encode_success(correlation_id, *success[1:4]) == encode_produce_response(
        general, [success]
    )


@pytest.mark.parametrize("version", [8, 9])
def test_a_message_too_long_for_the_protocol_is_truncated(version: int) -> None:
    request, _ = decoded(single(version))
    outcome = ProduceOutcome(3, -1, -1, -1, "\u20ac" * 40_000)
    _, [(_, _, fields)] = answered(version, encode_produce_response(request, [outcome]))
    assert fields == (3, -1, -1, -1, "\u20ac" * 1024, [])


# Laid out by hand from the protocol guide.
GOLDEN_ANSWER_V9 = bytes.fromhex(
    "00000035"  # size: 53 bytes follow
    "00000007"  # correlation id
    "00"  # header tags
    "02"  # one topic
    "076576656e7473"  # "events"
    "02"  # one partition
    "00000003"  # index
    "0000"  # no error
    "00000000000000ff"  # base offset
    "ffffffffffffffff"  # CreateTime
    "0000000000000010"  # log start offset
    "01" "00"  # no record errors, no message
    "00" "00"  # tags of partition and topic
    "00000000"  # throttle time
    "00"  # tags
)  # fmt: skip


def test_a_response_has_the_bytes_of_the_protocol_guide() -> None:
    request, _ = decoded(single(9, partition=3, correlation_id=7), ProduceDecoder().decode)
    assert request.template is not None
    assert request.template.encode_success(7, 255, -1, 16) == GOLDEN_ANSWER_V9
