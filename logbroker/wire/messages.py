"""Decodes requests and encodes responses of every API except Produce and Fetch.

These APIs are called rarely, so correctness in every version matters more than speed. The
message classes of kafka-python are generated from Kafka's own schemas.
"""

import struct
from functools import cache
from typing import Any, Final

from kafka.protocol.admin.acl import (
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
)
from kafka.protocol.admin.client_quotas import (
    AlterClientQuotasRequest,
    DescribeClientQuotasRequest,
)
from kafka.protocol.admin.cluster import DescribeClusterRequest, DescribeLogDirsRequest
from kafka.protocol.admin.configs import (
    AlterConfigsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.admin.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
)
from kafka.protocol.admin.topics import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
)
from kafka.protocol.admin.users import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.consumer.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kafka.protocol.consumer.offsets import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer.transaction import InitProducerIdRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from logbroker.errors import MalformedRequest
from logbroker.wire.apis import ApiKey, is_flexible
from logbroker.wire.primitives import EMPTY_TAGS
from logbroker.wire.request import RequestHeader
from logbroker.wire.schema import BoundedReader, Structure, validate_frame

FETCHED_GROUPS_MAX: Final = 1_000
"""The maximum of groups in one OffsetFetch request."""

BODY_BYTES_MAX: Final = 2**20
"""Enough for ten thousand topics; two hostile bytes can cost one object and 1.5 us."""

ITEMS_MAX: Final = 25_000
"""The items of all arrays of a request: 2.5 times the default of `partitions_max`."""

ITEMS_MAX_OF: Final = {
    ApiKey.DESCRIBE_GROUPS: 5_000,
    ApiKey.FIND_COORDINATOR: 5_000,
    ApiKey.DESCRIBE_CONFIGS: 5_000,
    ApiKey.OFFSET_COMMIT: 10_000,
    ApiKey.OFFSET_FETCH: 10_000,
    ApiKey.OFFSET_DELETE: 10_000,
    ApiKey.DELETE_GROUPS: 1_000,
}
"""Lower limits of requests whose items cost more."""

REQUESTS: Final[dict[ApiKey, Any]] = {
    ApiKey.LIST_OFFSETS: ListOffsetsRequest,
    ApiKey.METADATA: MetadataRequest,
    ApiKey.OFFSET_COMMIT: OffsetCommitRequest,
    ApiKey.OFFSET_FETCH: OffsetFetchRequest,
    ApiKey.FIND_COORDINATOR: FindCoordinatorRequest,
    ApiKey.JOIN_GROUP: JoinGroupRequest,
    ApiKey.HEARTBEAT: HeartbeatRequest,
    ApiKey.LEAVE_GROUP: LeaveGroupRequest,
    ApiKey.SYNC_GROUP: SyncGroupRequest,
    ApiKey.DESCRIBE_GROUPS: DescribeGroupsRequest,
    ApiKey.LIST_GROUPS: ListGroupsRequest,
    ApiKey.SASL_HANDSHAKE: SaslHandshakeRequest,
    ApiKey.API_VERSIONS: ApiVersionsRequest,
    ApiKey.CREATE_TOPICS: CreateTopicsRequest,
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest,
    ApiKey.DELETE_RECORDS: DeleteRecordsRequest,
    ApiKey.INIT_PRODUCER_ID: InitProducerIdRequest,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: OffsetForLeaderEpochRequest,
    ApiKey.DESCRIBE_ACLS: DescribeAclsRequest,
    ApiKey.CREATE_ACLS: CreateAclsRequest,
    ApiKey.DELETE_ACLS: DeleteAclsRequest,
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest,
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest,
    ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest,
    ApiKey.SASL_AUTHENTICATE: SaslAuthenticateRequest,
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest,
    ApiKey.DELETE_GROUPS: DeleteGroupsRequest,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: IncrementalAlterConfigsRequest,
    ApiKey.OFFSET_DELETE: OffsetDeleteRequest,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: DescribeClientQuotasRequest,
    ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DescribeUserScramCredentialsRequest,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest,
    ApiKey.DESCRIBE_CLUSTER: DescribeClusterRequest,
}

_SIZE_AND_CORRELATION_ID: Final = struct.Struct(">ii")
_CORRELATION_ID_BYTES: Final = 4


def decode_message(header: RequestHeader, frame: memoryview, offset: int) -> Any:
    """Return the kafka-python request whose body begins at `offset` of `frame`.

    It does not reference `frame`; its `version` is that of the header.

    Raises:
        MalformedRequest: the body is truncated or invalid, is larger than `BODY_BYTES_MAX`, or has
            more items than allowed.
    """
    size = len(frame) - offset
    if size > BODY_BYTES_MAX:
        raise MalformedRequest(f"body of {size} bytes; allowed is {BODY_BYTES_MAX}")
    api_key = ApiKey(header.api_key)
    flexible = is_flexible(api_key, header.api_version)
    items_max = ITEMS_MAX_OF.get(api_key, ITEMS_MAX)
    reader = BoundedReader(frame, offset, is_flexible=flexible, items_max=items_max)
    validate_frame(_structure(api_key, header.api_version), reader)
    try:
        request = REQUESTS[api_key].decode(frame[offset:], version=header.api_version)
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise MalformedRequest(f"{api_key.name} v{header.api_version}: {error}") from error
    if api_key == ApiKey.OFFSET_FETCH and len(request.groups or ()) > FETCHED_GROUPS_MAX:
        raise MalformedRequest(
            f"OffsetFetch of {len(request.groups)} groups; allowed is {FETCHED_GROUPS_MAX}"
        )
    return request


def encode_message(header: RequestHeader, message: Any) -> bytes:
    """Return the encoded response to the request of `header`, size prefix included.

    `message` is a kafka-python response of the same API. The header of an ApiVersions response
    has no tags in any version, since the client does not know the broker's versions yet.
    """
    flexible = is_flexible(header.api_key, header.api_version)
    tags = EMPTY_TAGS if flexible and header.api_key != ApiKey.API_VERSIONS else b""
    body: bytearray = message.encode(version=header.api_version)
    size = _CORRELATION_ID_BYTES + len(tags) + len(body)
    return _SIZE_AND_CORRELATION_ID.pack(size, header.correlation_id) + tags + body


@cache
def _structure(api_key: ApiKey, version: int) -> Structure:
    return Structure(REQUESTS[api_key].json["fields"], version)
