"""Requests that are sent seldom, through kafka-python's message classes, and their answers.

Answers are checked against their schema before kafka-python decodes them, as requests are (see
`logbroker.wire.schema`): what a connection garbles is told apart from what a broker says.
"""

import struct
from functools import cache
from typing import Any, Final

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
from logbroker.wire.frame_reader import FrameReader
from logbroker.wire.schema import Structure, check_request

RESPONSES: Final[dict[Any, Any]] = {
    ApiVersionsRequest: ApiVersionsResponse,
    MetadataRequest: MetadataResponse,
    ListOffsetsRequest: ListOffsetsResponse,
    DescribeLogDirsRequest: DescribeLogDirsResponse,
    SaslHandshakeRequest: SaslHandshakeResponse,
    SaslAuthenticateRequest: SaslAuthenticateResponse,
}

SPOKEN: Final[dict[Any, tuple[int, int]]] = {
    # Every broker answers version 0, so that nobody has to ask twice.
    ApiVersionsRequest: (0, 0),
    # From 1, null asks for all topics; 13 adds nothing to read.
    MetadataRequest: (1, 12),
    # From 1, there is one offset for a time; from 9, only times of tiers and uploads are added.
    ListOffsetsRequest: (1, 8),
    # From 3, there is an error code where the user lacks the right; before, the answer is empty.
    DescribeLogDirsRequest: (1, 4),
    # From 1, the mechanism's bytes travel in requests; before, they were bare.
    SaslHandshakeRequest: (1, 1),
    SaslAuthenticateRequest: (0, 2),
}
"""Lowest and highest version of each request that is sent here."""

_CORRELATION_ID: Final = struct.Struct(">i")


def encode_call(message: Any, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The frame of a request, size prefix included; `message` is one of kafka-python's."""
    message.API_VERSION = version
    message.with_header(correlation_id, client_id)
    return bytes(message.encode(version=version, header=True, framed=True))


def decode_call_answer(request: Any, version: int, frame: memoryview) -> Any:
    """The answer in `frame`, without its size prefix, to a `request` (a class) of this version.

    It is an object of kafka-python's, and holds copies.

    Raises:
        MalformedRequest: the frame is cut or breaks a rule of the protocol.
    """
    response = RESPONSES[request]
    flexible = response.flexible_version_q(version)
    reader = FrameReader(frame, 0, len(frame), is_flexible=flexible)
    reader.take(_CORRELATION_ID)
    reader.skip_tags()
    body = frame[reader.position :]
    check_request(_structure(response, version), reader)
    try:
        return response.decode(body, version=version)
    except (ValueError, IndexError, OverflowError, struct.error) as error:
        raise MalformedRequest(f"{response.name} v{version}: {error}") from error


@cache
def _structure(response: Any, version: int) -> Structure:
    return Structure(response.json["fields"], version)
