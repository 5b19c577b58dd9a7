"""The request header: API, version, correlation id and client id.

    0  apiKey         int16
    2  apiVersion     int16
    4  correlationId  int32
    8  clientId       nullable string, its length an int16 in every version
    .. tagged fields  in flexible versions (header version 2)

Source: Kafka protocol guide, "Request Header"; KIP-482.
"""

import struct
from typing import Final, NamedTuple

from logbroker.errors import UnsupportedRequest
from logbroker.wire.apis import ApiKey, is_flexible, serves
from logbroker.wire.frame_reader import FrameReader

_FIXED: Final = struct.Struct(">hhi")


class RequestHeader(NamedTuple):
    """The fields of a header, in wire order."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def open_request(buffer: memoryview, start: int, end: int) -> tuple[RequestHeader, FrameReader]:
    """Return the header of the frame `buffer[start:end]` and a reader at the start of its body.

    ApiVersions is accepted in any version, since clients send it to learn the versions. In an
    unsupported version the reader is just past the client id.

    Raises:
        MalformedRequest: the frame ends inside the header.
        UnsupportedRequest: the API or its version is not supported.
    """
    reader = FrameReader(buffer, start, end)
    api_key, api_version, correlation_id = reader.read_fields(_FIXED)
    is_supported = serves(api_key, api_version)
    if not is_supported and api_key != ApiKey.API_VERSIONS:
        raise UnsupportedRequest(f"API {api_key} version {api_version} is not supported")
    client_id = reader.read_legacy_string()
    if is_supported and is_flexible(api_key, api_version):
        reader.is_flexible = True
        reader.skip_tags()
    return RequestHeader(api_key, api_version, correlation_id, client_id), reader


def read_request_header(frame: memoryview) -> tuple[RequestHeader, int]:
    """Return the header of one frame and the offset of its body; see `open_request`.

    Raises:
        MalformedRequest: the frame ends inside the header.
        UnsupportedRequest: the API or its version is not supported.
    """
    header, reader = open_request(frame, 0, len(frame))
    return header, reader.position
