"""ApiVersions: the API versions that this broker supports.

Source: KIP-35, KIP-511 (unknown versions, client software), KIP-896 (removed versions).
"""

import re
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsResponse

from logbroker.wire.apis import ADVERTISED, ApiKey, serves
from logbroker.wire.error_codes import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from logbroker.wire.messages import decode_message, encode_message
from logbroker.wire.request import RequestHeader

FIRST_WITH_SOFTWARE: Final = 3

SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The pattern of the name and of the version of a client's software."""


def encode_api_versions_response(header: RequestHeader, frame: memoryview, offset: int) -> bytes:
    """Return the response, size prefix included, to the request whose body begins at `offset`.

    An unsupported version gets a response of version 0 with the versions of this API only:
    every client reads it and retries.

    Raises:
        MalformedRequest: the body of a supported version does not parse.
    """
    if not serves(ApiKey.API_VERSIONS, header.api_version):
        own = (ApiKey.API_VERSIONS,)
        return encode_message(header._replace(api_version=0), _response(UNSUPPORTED_VERSION, own))
    request = decode_message(header, frame, offset)
    if header.api_version >= FIRST_WITH_SOFTWARE and not _has_valid_software(request):
        return encode_message(header, _response(INVALID_REQUEST, ()))
    return encode_message(header, _response(NONE, tuple(ADVERTISED)))


def _has_valid_software(request: Any) -> bool:
    return all(
        SOFTWARE.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    )


def _response(error_code: int, api_keys: tuple[ApiKey, ...]) -> ApiVersionsResponse:
    """Return a response without features: no transactions v2, classic groups only."""
    return ApiVersionsResponse(
        error_code=error_code,
        api_keys=[
            ApiVersionsResponse.ApiVersion(
                api_key=api_key,
                min_version=ADVERTISED[api_key][0],
                max_version=ADVERTISED[api_key][1],
            )
            for api_key in api_keys
        ],
        throttle_time_ms=0,
    )
