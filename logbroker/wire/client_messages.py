"""Encodes requests and decodes responses of a client, for every API except Fetch.

Responses are validated against their schema before kafka-python decodes them (see
`logbroker.wire.schema`), so a damaged frame is distinguished from an error of the broker.
"""

import struct
from functools import cache
from typing import Any, Final

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
from logbroker.wire.schema import BoundedReader, Structure, validate_frame

RESPONSES: Final[dict[Any, Any]] = {
    ApiVersionsRequest: ApiVersionsResponse,
    MetadataRequest: MetadataResponse,
    ListOffsetsRequest: ListOffsetsResponse,
    DescribeLogDirsRequest: DescribeLogDirsResponse,
    DescribeClientQuotasRequest: DescribeClientQuotasResponse,
    AlterClientQuotasRequest: AlterClientQuotasResponse,
    SaslHandshakeRequest: SaslHandshakeResponse,
    SaslAuthenticateRequest: SaslAuthenticateResponse,
}

SENT_VERSIONS: Final[dict[Any, tuple[int, int]]] = {
    # Every broker answers version 0, so one request is enough.
    ApiVersionsRequest: (0, 0),
    # From 1, null requests all topics; 13 adds no field that is used.
    MetadataRequest: (1, 12),
    # From 1, a timestamp has one offset; from 9, only timestamps of tiered storage are added.
    ListOffsetsRequest: (1, 8),
    # From 3, a missing permission has an error code; before, the response is empty.
    DescribeLogDirsRequest: (1, 4),
    DescribeClientQuotasRequest: (0, 1),
    AlterClientQuotasRequest: (0, 1),
    # From 1, SASL tokens are sent in SaslAuthenticate requests; before, they were sent bare.
    SaslHandshakeRequest: (1, 1),
    SaslAuthenticateRequest: (0, 2),
}
"""Lowest and highest version of each request that the client sends."""

_CORRELATION_ID: Final = struct.Struct(">i")


def encode_client_request(
    message: Any, version: int, correlation_id: int, client_id: str | None
) -> bytes:
    """Return the frame of a kafka-python request, size prefix included."""
    message.API_VERSION = version
    message.with_header(correlation_id, client_id)
    return bytes(message.encode(version=version, header=True, framed=True))


def decode_client_response(request: Any, version: int, frame: memoryview) -> Any:
    """Return the kafka-python response in `frame` (without size prefix) to a request class.

    It does not reference `frame`.

    Raises:
        MalformedRequest: the frame is truncated or violates the protocol.
    """
    response = RESPONSES[request]
    flexible = response.flexible_version_q(version)
    # Every item takes at least a byte.
    reader = BoundedReader(frame, 0, is_flexible=flexible, items_max=len(frame))
    reader.read_fields(_CORRELATION_ID)
    reader.skip_tags()
    body = frame[reader.position :]
    validate_frame(_structure(response, version), reader)
    try:
        return response.decode(body, version=version)
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise MalformedRequest(f"{response.name} v{version}: {error}") from error


@cache
def _structure(response: Any, version: int) -> Structure:
    return Structure(response.json["fields"], version)
