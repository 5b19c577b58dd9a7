from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from kafka.protocol.admin.cluster import DescribeLogDirsRequest, DescribeLogDirsResponse
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

from logbroker.errors import MalformedRequest
from logbroker.wire.client_messages import (
    SENT_VERSIONS,
    decode_client_response,
    encode_client_request,
)

_Topic = MetadataResponse.MetadataResponseTopic
_Broker = MetadataResponse.MetadataResponseBroker
_Offsets = ListOffsetsResponse.ListOffsetsTopicResponse
_Folder = DescribeLogDirsResponse.DescribeLogDirsResult


def metadata(version: int) -> Any:
    partition = _Topic.MetadataResponsePartition(
        version=version,
        error_code=0,
        partition_index=5,
        leader_id=1,
        leader_epoch=4,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[2],
    )
    topic = _Topic(
        version=version,
        error_code=0,
        name="topic",
        topic_id=UUID(int=7),
        is_internal=True,
        partitions=[partition],
    )
    broker = _Broker(version=version, node_id=1, host="host", port=9092, rack="rack")
    return MetadataResponse(
        version=version,
        throttle_time_ms=0,
        brokers=[broker],
        cluster_id="cluster",
        controller_id=1,
        topics=[topic],
    )


def list_offsets(version: int) -> Any:
    partition = _Offsets.ListOffsetsPartitionResponse(
        version=version, partition_index=5, error_code=0, timestamp=1, offset=2, leader_epoch=3
    )
    topic = _Offsets(version=version, name="topic", partitions=[partition])
    return ListOffsetsResponse(version=version, throttle_time_ms=0, topics=[topic])


def log_dirs(version: int) -> Any:
    partition = _Folder.DescribeLogDirsTopic.DescribeLogDirsPartition(
        version=version, partition_index=5, partition_size=7, offset_lag=1, is_future_key=False
    )
    topic = _Folder.DescribeLogDirsTopic(version=version, name="topic", partitions=[partition])
    folder = _Folder(version=version, error_code=0, log_dir="/data", topics=[topic])
    return DescribeLogDirsResponse(
        version=version, throttle_time_ms=0, error_code=0, results=[folder]
    )


def api_versions(version: int) -> Any:
    key = ApiVersionsResponse.ApiVersion(version=version, api_key=1, min_version=4, max_version=17)
    return ApiVersionsResponse(version=version, error_code=0, api_keys=[key])


def handshake(version: int) -> Any:
    return SaslHandshakeResponse(version=version, error_code=0, mechanisms=["PLAIN", "OTHER"])


def authenticated(version: int) -> Any:
    return SaslAuthenticateResponse(
        version=version,
        error_code=0,
        error_message="none",
        auth_bytes=b"proof",
        session_lifetime_ms=10,
    )


def quotas(version: int) -> Any:
    entry = DescribeClientQuotasResponse.EntryData
    entity = [entry.EntityData(version=version, entity_type="user", entity_name=None)]
    values = [entry.ValueData(version=version, key="producer_byte_rate", value=1024.5)]
    return DescribeClientQuotasResponse(
        version=version,
        throttle_time_ms=0,
        error_code=0,
        error_message=None,
        entries=[entry(version=version, entity=entity, values=values)],
    )


def altered_quotas(version: int) -> Any:
    entry = AlterClientQuotasResponse.EntryData
    entity = [entry.EntityData(version=version, entity_type="client-id", entity_name="app")]
    return AlterClientQuotasResponse(
        version=version,
        throttle_time_ms=0,
        entries=[entry(version=version, error_code=42, error_message="no", entity=entity)],
    )


ANSWERS = {
    ApiVersionsRequest: api_versions,
    MetadataRequest: metadata,
    ListOffsetsRequest: list_offsets,
    DescribeLogDirsRequest: log_dirs,
    DescribeClientQuotasRequest: quotas,
    AlterClientQuotasRequest: altered_quotas,
    SaslHandshakeRequest: handshake,
    SaslAuthenticateRequest: authenticated,
}
CASES = [
    pytest.param(request, version, id=f"{request.name}-{version}")
    for request, (lowest, highest) in SENT_VERSIONS.items()
    for version in range(lowest, highest + 1)
]


def answer_frame(request: Any, version: int) -> tuple[Any, memoryview]:
    """An answer, and its frame without the size prefix."""
    message = ANSWERS[request](version)
    message.with_header(3)
    return message, memoryview(bytes(message.encode(header=True)))


@pytest.mark.parametrize(("request_class", "version"), CASES)
def test_a_response_is_decoded_as_encoded(request_class: Any, version: int) -> None:
    message, frame = answer_frame(request_class, version)

    read = decode_client_response(request_class, version, frame)

    # kafka-python encodes only what was given a header, or none.
    read._header = None
    assert bytes(read.encode(version=version)) == bytes(message.encode())


@pytest.mark.parametrize(("request_class", "version"), CASES)
def test_a_truncated_response_is_malformed(request_class: Any, version: int) -> None:
    _, frame = answer_frame(request_class, version)

    for end in range(len(frame)):
        with pytest.raises(MalformedRequest):
            decode_client_response(request_class, version, frame[:end])


def test_a_count_above_the_frame_size_is_rejected_before_allocation() -> None:
    frame = memoryview(b"\x00\x00\x00\x01" + b"\x7f\xff\xff\xff" * 4)

    with pytest.raises(MalformedRequest, match="2147483647 items"):
        decode_client_response(MetadataRequest, 1, frame)


def test_a_request_names_its_client_and_its_number() -> None:
    frame = encode_client_request(ApiVersionsRequest(), 0, 77, "client")

    assert frame == bytes.fromhex("00000010 0012 0000 0000004d 0006") + b"client"
