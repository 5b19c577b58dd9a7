import re
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin.acl import (
    CreateAclsResponse,
    DeleteAclsResponse,
    DescribeAclsResponse,
)
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasResponse,
    DescribeClientQuotasResponse,
)
from kafka.protocol.admin.cluster import DescribeClusterResponse, DescribeLogDirsResponse
from kafka.protocol.admin.configs import (
    AlterConfigsResponse,
    DescribeConfigsResponse,
    IncrementalAlterConfigsResponse,
)
from kafka.protocol.admin.groups import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
)
from kafka.protocol.admin.topics import (
    CreatePartitionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsResponse,
    DeleteTopicsResponse,
)
from kafka.protocol.admin.users import (
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsResponse,
)
from kafka.protocol.consumer.group import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupResponse,
    OffsetCommitResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
    SyncGroupResponse,
)
from kafka.protocol.consumer.offsets import ListOffsetsResponse, OffsetForLeaderEpochResponse
from kafka.protocol.metadata import (
    ApiVersionsResponse,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer.transaction import InitProducerIdResponse
from kafka.protocol.sasl import SaslAuthenticateResponse, SaslHandshakeResponse

from logbroker.errors import MalformedRequest
from logbroker.wire.apis import SERVED, ApiKey, is_flexible
from logbroker.wire.messages import BODY_BYTES_MAX, REQUESTS, decode_message, encode_message
from logbroker.wire.request import RequestHeader, read_request_header
from tests.support.property_examples import examples

RESPONSES: dict[ApiKey, Any] = {
    ApiKey.LIST_OFFSETS: ListOffsetsResponse,
    ApiKey.METADATA: MetadataResponse,
    ApiKey.OFFSET_COMMIT: OffsetCommitResponse,
    ApiKey.OFFSET_FETCH: OffsetFetchResponse,
    ApiKey.FIND_COORDINATOR: FindCoordinatorResponse,
    ApiKey.JOIN_GROUP: JoinGroupResponse,
    ApiKey.HEARTBEAT: HeartbeatResponse,
    ApiKey.LEAVE_GROUP: LeaveGroupResponse,
    ApiKey.SYNC_GROUP: SyncGroupResponse,
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsResponse,
    ApiKey.LIST_GROUPS: ListGroupsResponse,
    ApiKey.API_VERSIONS: ApiVersionsResponse,
    ApiKey.CREATE_TOPICS: CreateTopicsResponse,
    ApiKey.DELETE_TOPICS: DeleteTopicsResponse,
    ApiKey.DELETE_RECORDS: DeleteRecordsResponse,
    ApiKey.INIT_PRODUCER_ID: InitProducerIdResponse,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochResponse,
    ApiKey.DESCRIBE_ACLS: DescribeAclsResponse,
    ApiKey.CREATE_ACLS: CreateAclsResponse,
    ApiKey.DELETE_ACLS: DeleteAclsResponse,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsResponse,
    ApiKey.ALTER_CONFIGS: AlterConfigsResponse,
    ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsResponse,
    ApiKey.CREATE_PARTITIONS: CreatePartitionsResponse,
    ApiKey.DELETE_GROUPS: DeleteGroupsResponse,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsResponse,
    ApiKey.OFFSET_DELETE: OffsetDeleteResponse,
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterResponse,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeResponse,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateResponse,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasResponse,
    ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasResponse,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsResponse,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsResponse,
}

EVERY_VERSION = [
    pytest.param(api_key, version, id=f"{api_key.name}-v{version}")
    for api_key in REQUESTS
    for version in range(SERVED[api_key][0], SERVED[api_key][1] + 1)
]

VERSIONS = [
    pytest.param(api_key, range(SERVED[api_key][0], SERVED[api_key][1] + 1), id=api_key.name)
    for api_key in REQUESTS
]
"""All versions of a request. A property test draws each in an example: to run it costs 10 ms."""

FIRST_AND_LAST = [
    pytest.param(api_key, sorted({*SERVED[api_key]}), id=api_key.name) for api_key in REQUESTS
]
"""Each request in its oldest encoding and in its newest, which is the flexible one (KIP-482)."""

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.text(max_size=8),
    "bytes": st.binary(max_size=8),
    # kafka-python reads the id of all zeros as none.
    "uuid": st.uuids().filter(lambda value: value.int != 0),
}


def is_in(version: int, versions: str) -> bool:
    if versions.endswith("+"):
        return version >= int(versions[:-1])
    lowest, _, highest = versions.partition("-")
    return int(lowest) <= version <= int(highest or lowest)


def attribute_of(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def values_of(owner: Any, field: dict[str, Any], version: int) -> st.SearchStrategy[Any]:
    kind = field["type"]
    if "fields" in field:
        inner = getattr(owner, kind[2:])
        values: st.SearchStrategy[Any] = st.lists(
            messages(inner, field["fields"], version), max_size=2
        )
    elif kind.startswith("[]"):
        values = st.lists(VALUES[kind[2:]], max_size=2)
    else:
        values = VALUES[kind]
    nullable = field.get("nullableVersions")
    return st.none() | values if nullable and is_in(version, nullable) else values


def messages(
    message_class: Any, fields: Sequence[dict[str, Any]], version: int
) -> st.SearchStrategy[Any]:
    """Any message that this version can carry, drawn from Kafka's own schema."""
    drawn = {
        attribute_of(field["name"]): values_of(message_class, field, version)
        for field in fields
        if is_in(version, field["versions"])
        and "tag" not in field
        # kafka-python's own kind of field: a set of operations
        and field["type"] != "bitfield"
    }
    return st.builds(message_class, version=st.just(version), **drawn)


@cache
def requests(api_key: ApiKey, version: int) -> st.SearchStrategy[Any]:
    message_class = REQUESTS[api_key]
    return messages(message_class, message_class.json["fields"], version)


@cache
def responses(api_key: ApiKey, version: int) -> st.SearchStrategy[Any]:
    message_class = RESPONSES[api_key]
    return messages(message_class, message_class.json["fields"], version)


def frame_of(request: Any, correlation_id: int = 5, client_id: str | None = "cold") -> bytes:
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(header=True))


def decoded(frame: bytes) -> tuple[RequestHeader, Any]:
    view = memoryview(bytearray(frame))
    header, offset = read_request_header(view)
    return header, decode_message(header, view, offset)


@pytest.mark.parametrize(("api_key", "versions"), VERSIONS)
@examples(10)
@given(st.data())
def test_requests_of_kafka_python_are_decoded(
    api_key: ApiKey, versions: Sequence[int], data: st.DataObject
) -> None:
    for version in versions:
        request = data.draw(requests(api_key, version), f"version {version}")
        header, message = decoded(frame_of(request))
        assert header == RequestHeader(api_key, version, 5, "cold")
        assert message.version == version
        assert message.to_dict() == request.to_dict()


@pytest.mark.parametrize(("api_key", "versions"), FIRST_AND_LAST)
@examples(3)
@given(st.data())
def test_a_request_cut_at_any_byte_is_malformed(
    api_key: ApiKey, versions: Sequence[int], data: st.DataObject
) -> None:
    for version in versions:
        frame = frame_of(data.draw(requests(api_key, version), f"version {version}"))
        for end in range(len(frame)):
            with pytest.raises(MalformedRequest):
                decoded(frame[:end])
        # librdkafka sends stray bytes behind some requests; Kafka passes over them.
        assert decoded(frame + bytes(3))[1].to_dict() == decoded(frame)[1].to_dict()


@pytest.mark.parametrize(("api_key", "versions"), FIRST_AND_LAST)
@examples(20)
@given(st.data())
def test_any_bytes_are_a_request_or_malformed(
    api_key: ApiKey, versions: Sequence[int], data: st.DataObject
) -> None:
    for version in versions:
        frame = bytearray(frame_of(data.draw(requests(api_key, version), f"version {version}")))
        for _ in range(data.draw(st.integers(1, 4))):
            frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
        check_request_or_malformed(api_key, version, frame)


def check_request_or_malformed(api_key: ApiKey, version: int, frame: bytearray) -> None:
    try:
        _, message = decoded(bytes(frame))
    except MalformedRequest:
        return
    # It encodes again: nothing in it is cut or of the wrong type.
    message._header = None
    again = REQUESTS[api_key].decode(bytes(message.encode(version=version)), version=version)
    # A number may be NaN, which equals nothing.
    assert repr(again.to_dict()) == repr(message.to_dict())


@pytest.mark.parametrize(("api_key", "versions"), VERSIONS)
@examples(10)
@given(st.data())
def test_kafka_python_decodes_the_response(
    api_key: ApiKey, versions: Sequence[int], data: st.DataObject
) -> None:
    for version in versions:
        response = data.draw(responses(api_key, version), f"version {version}")
        check_response(api_key, version, response)


def check_response(api_key: ApiKey, version: int, response: Any) -> None:
    response_class = RESPONSES[api_key]
    if api_key is ApiKey.API_VERSIONS:
        response.error_code = 0  # else kafka-python reads version 0
    answer = encode_message(RequestHeader(api_key, version, 2**31 - 1, None), response)
    assert int.from_bytes(answer[:4], "big") == len(answer) - 4
    again = response_class.decode(answer, version=version, header=True, framed=True)
    assert again.header.correlation_id == 2**31 - 1
    assert again.to_dict() == response.to_dict()


def before_array(api_key: ApiKey, version: int) -> bytes | None:
    """A body up to its first array, all zero and empty; none for a body without one."""
    empty_string = b"\1" if is_flexible(api_key, version) else b"\0\0"
    sizes = {"bool": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
    before = b""
    for field in REQUESTS[api_key].json["fields"]:
        if not is_in(version, field["versions"]):
            continue
        if field["type"].startswith("[]"):
            return before
        kind = field["type"]
        if kind == "bytes":
            before += bytes(1) if is_flexible(api_key, version) else bytes(4)
        else:
            before += empty_string if kind == "string" else bytes(sizes[kind])
    return None


def has_array(param: Any) -> bool:
    return before_array(*param.values) is not None


WITH_ARRAY = [param for param in EVERY_VERSION if has_array(param)]


@pytest.mark.parametrize(("api_key", "version"), WITH_ARRAY)
def test_an_oversized_count_is_rejected_before_the_loop(api_key: ApiKey, version: int) -> None:
    # As a legacy count, 2**31 and 2**32 - 2 are negative, and not the -1 of null.
    for count in (2**31 - 1, 2**31, 2**32 - 2, 100):
        check_oversized_count(api_key, version, count)


def check_oversized_count(api_key: ApiKey, version: int, count: int) -> None:
    header = struct.pack(">hhihc", api_key, version, 1, 1, b"c")
    before = before_array(api_key, version)
    assert before is not None
    if is_flexible(api_key, version):
        varint = bytes((count >> shift) & 0x7F | 0x80 for shift in (0, 7, 14, 21))
        frame = header + b"\0" + before + varint + bytes((count >> 28,))
    else:
        frame = header + before + count.to_bytes(4, "big")
    with pytest.raises(MalformedRequest, match=r"items of \d+ bytes or more|^length -"):
        decoded(frame + bytes(20))


def test_an_oversized_inner_count_is_rejected_before_the_loop() -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[]
    )
    frame = frame_of(
        CreateTopicsRequest(version=4, topics=[topic], timeout_ms=1, validate_only=False)
    )
    at = frame.index(b"\0\1t") + 3 + 4 + 2
    hostile = frame[:at] + (2**31 - 1).to_bytes(4, "big") + frame[at + 4 :]
    with pytest.raises(MalformedRequest, match="2147483647 items of"):
        decoded(hostile)


def test_null_where_nothing_may_be_null_is_malformed() -> None:
    with pytest.raises(MalformedRequest, match="null array"):
        decoded(struct.pack(">hhihc", ApiKey.METADATA, 0, 1, 1, b"c") + b"\xff" * 4)
    _, request = decoded(frame_of(MetadataRequest(version=1, topics=None)))
    assert request.topics is None
    nameless = MetadataRequest.MetadataRequestTopic(name=None)
    with pytest.raises(MalformedRequest, match="null string"):
        decoded(frame_of(MetadataRequest(version=9, topics=[nameless])))


def metadata_with_tags(topics: int, tags: bytes) -> bytes:
    header = struct.pack(">hhihc", ApiKey.METADATA, 9, 1, 1, b"c") + tags
    count = bytes(((topics + 1) & 0x7F | 0x80, (topics + 1) >> 7 & 0x7F | 0x80, (topics + 1) >> 14))
    return header + count + (b"\2t" + tags) * topics + b"\0\0\0" + tags


def test_unknown_tags_are_skipped() -> None:
    _, request = decoded(metadata_with_tags(3, b"\2\5\3abc\x90\x01\0"))
    assert [topic.name for topic in request.topics] == ["t", "t", "t"]


def test_null_where_bytes_must_be_is_malformed() -> None:
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")
    request = JoinGroupRequest(
        version=0,
        group_id="group",
        session_timeout_ms=1,
        member_id="",
        protocol_type="consumer",
        protocols=[protocol],
    )
    frame = frame_of(request)
    assert frame.endswith(bytes(4))
    with pytest.raises(MalformedRequest, match="null array before"):
        decoded(frame[:-4] + b"\xff" * 4)


def test_tags_that_would_be_copied_too_often_are_rejected() -> None:
    with pytest.raises(MalformedRequest, match="structures with tags"):
        decoded(metadata_with_tags(20_000, b"\1\5\0"))


def test_a_body_above_the_limit_is_rejected() -> None:
    header = struct.pack(">hhihc", ApiKey.METADATA, 0, 1, 1, b"c")
    with pytest.raises(MalformedRequest, match=f"allowed is {BODY_BYTES_MAX}"):
        decoded(header + bytes(BODY_BYTES_MAX + 1))


def test_a_message_outlives_its_frame() -> None:
    topic = MetadataRequest.MetadataRequestTopic(name="events")
    frame = bytearray(frame_of(MetadataRequest(version=4, topics=[topic])))
    header, offset = read_request_header(memoryview(frame))
    request = decode_message(header, memoryview(frame), offset)
    frame[:] = bytes(len(frame))
    assert request.topics[0].name == "events"
