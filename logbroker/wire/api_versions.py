"""ApiVersions: what this broker speaks, told to clients that may speak something else.

Source: KIP-35, KIP-511 (unknown versions, client software), KIP-896 (removed versions).
"""

import re
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsResponse

from logbroker.wire.apis import ADVERTISED, ApiKey, serves
from logbroker.wire.cold import decode_cold, encode_cold
from logbroker.wire.error_codes import INVALID_REQUEST, NONE, UNSUPPORTED_VERSION
from logbroker.wire.request import RequestHeader

FIRST_WITH_SOFTWARE: Final = 3

SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client's software may be called, and its version."""


def answer_api_versions(header: RequestHeader, frame: memoryview, offset: int) -> bytes:
    """The answer, size prefix included, to the request whose body begins at `offset`.

    A version that is not served is answered in version 0 with the versions of this API alone:
    every client reads that and asks again.

    Raises:
        MalformedRequest: the body of a served version does not parse.
    """
    if not serves(ApiKey.API_VERSIONS, header.api_version):
        own = (ApiKey.API_VERSIONS,)
        return encode_cold(header._replace(api_version=0), _response(UNSUPPORTED_VERSION, own))
    request = decode_cold(header, frame, offset)
    if header.api_version >= FIRST_WITH_SOFTWARE and not _is_well_named(request):
        return encode_cold(header, _response(INVALID_REQUEST, ()))
    return encode_cold(header, _response(NONE, tuple(ADVERTISED)))


def _is_well_named(request: Any) -> bool:
    return all(
        SOFTWARE.fullmatch(text)
        for text in (request.client_software_name, request.client_software_version)
    )


def _response(error_code: int, api_keys: tuple[ApiKey, ...]) -> ApiVersionsResponse:
    """Without features: no transactions of the new kind, and classic groups."""
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
