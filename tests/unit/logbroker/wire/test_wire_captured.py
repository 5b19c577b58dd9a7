"""Requests as librdkafka 2.16.0 sends them, taken from its socket.

A process that listened on a free port answered ApiVersions and Metadata with one topic,
`events` (id 7), and printed every frame, while confluent-kafka ran against it:

    Producer(conf).produce("events", b"v", b"k")
    Consumer({**conf, "group.id": "g"}).assign([TopicPartition("events", 0, 0)])
    consumer.offsets_for_times([TopicPartition("events", 0, 5)])
    AdminClient(conf).list_topics()
"""

from typing import Any
from uuid import UUID

from logbroker.records.batch import crc_matches, read_header
from logbroker.records.record import decode_records
from logbroker.wire.fetch import FetchPartition, FetchRequest, decode_fetch_request
from logbroker.wire.messages import decode_message
from logbroker.wire.produce import ProduceDecoder
from logbroker.wire.request import RequestHeader, read_request_header

CLIENT = "0007 72646b61666b61 00"  # "rdkafka", and no tags

PRODUCE_V10 = bytes.fromhex(
    f"0000 000a 00000003 {CLIENT}"
    "00 ffff 00007530 02 076576656e7473 02 00000000 47"
    "00000000000000000000003a0000000002968927b0000000000000000001a1fd500b6d000001a1fd500b6dff"
    "ffffffffffffffffffffffffff0000000110000000026b02760000 0000"
)
FETCH_V16 = bytes.fromhex(
    f"0001 0010 00000004 {CLIENT}"
    "000001f4 00000001 03200000 01 00000000 ffffffff"
    "02 00000000000000000000000000000007"
    "02 00000000 00000000 0000000000000000 ffffffff ffffffffffffffff 00100000 00 00"
    "01 01 00"
)
LIST_OFFSETS_V7 = bytes.fromhex(
    f"0002 0007 00000005 {CLIENT}"
    "ffffffff 01 02 076576656e7473 02 00000000 00000000 0000000000000005 00 00 00"
)
METADATA_V12_ALL_TOPICS = bytes.fromhex(f"0003 000c 00000002 {CLIENT} 00000000 01 00 00")
METADATA_V12_ONE_TOPIC = bytes.fromhex(
    f"0003 000c 00000002 {CLIENT}02 00000000000000000000000000000000 076576656e7473 00 01 00 00"
)


def cold(frame: bytes) -> tuple[RequestHeader, Any]:
    view = memoryview(frame)
    header, offset = read_request_header(view)
    return header, decode_message(header, view, offset)


def test_its_produce_request_is_decoded_and_becomes_a_template() -> None:
    decoder = ProduceDecoder()
    buffer = memoryview(PRODUCE_V10)
    for _ in range(2):
        request = decoder.decode(buffer, 0, len(buffer))
        assert request.template is not None
        assert (request.correlation_id, request.acks, request.timeout_ms) == (3, -1, 30_000)
        ((topic, partition, start, end),) = request.batches
        assert (topic, partition) == ("events", 0)
        batch = buffer[start:end]
        assert crc_matches(batch, read_header(batch).crc)
        assert [(record.key, record.value) for record in decode_records(batch)] == [(b"k", b"v")]


def test_its_fetch_request_names_the_topic_by_id() -> None:
    assert decode_fetch_request(memoryview(FETCH_V16), 0, len(FETCH_V16)) == FetchRequest(
        correlation_id=4,
        api_version=16,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 * 2**20,
        session_id=0,
        session_epoch=-1,
        partitions=[FetchPartition(None, UUID(int=7), 0, 0, 0, 2**20)],
    )


def test_its_lookup_by_time_is_decoded() -> None:
    header, request = cold(LIST_OFFSETS_V7)
    assert header == RequestHeader(2, 7, 5, "rdkafka")
    (topic,) = request.topics
    (partition,) = topic.partitions
    assert (topic.name, partition.partition_index, partition.timestamp) == ("events", 0, 5)


def test_it_requests_all_topics_with_three_extra_bytes() -> None:
    # A null array takes one byte in this version; it sends the four of a legacy one.
    _, request = cold(METADATA_V12_ALL_TOPICS)
    assert request.topics is None


def test_it_requests_a_topic_by_name_with_an_empty_id() -> None:
    _, request = cold(METADATA_V12_ONE_TOPIC)
    assert [(topic.name, topic.topic_id) for topic in request.topics] == [("events", None)]
    assert request.allow_auto_topic_creation is True
