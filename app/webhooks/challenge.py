"""The messages of verification: pings and challenges.

A ping is a signed POST that the receiver answers with a 2xx status. A challenge (Twitter's
challenge-response check, CRC) is a GET that only an owner of the secret can answer.

The key of a challenge's response is the text of the secret, including `whsec_`, as Twitter's is the
text of the consumer secret. The key of signatures is the decoded secret. They must differ: a
receiver answers any challenge, so with one key an attacker could make it sign an event.

Source: Standard Webhooks 1.0.0; X, "Securing webhooks", challenge-response checks.
"""

import hmac
import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from app.webhooks.request import rewind_event_body

PING_TYPE: Final = "webhook.ping"
PING_ID_PREFIX: Final = "ping_"

TOKEN_PARAMETER: Final = "crc_token"  # noqa: S105  the name of a parameter
NONCE_PARAMETER: Final = "nonce"

_ALGORITHM: Final = "sha256="
_RESPONSE_MEMBER: Final = "response_token"


def ping_body(webhook_id: str, now_ms: int) -> bytes:
    """The body of a ping, in the format of an event."""
    return rewind_event_body(PING_TYPE, webhook_id, now_ms)


def is_ping(message_id: str, body: bytes) -> bool:
    """Whether the request is a ping and not an event of the platform."""
    # The prefix first: receivers check every event, and parsing is expensive.
    if not message_id.startswith(PING_ID_PREFIX):
        return False
    ping = _parse_object(body)
    return ping is not None and ping.get("type") == PING_TYPE


def crc_response(secret: str, token: str) -> bytes:
    """The response body to the challenge `token`, for a receiver with `secret`."""
    return json.dumps({_RESPONSE_MEMBER: _response_token(secret, token)}).encode()


def crc_problem(secrets: Iterable[str], token: str, body: bytes) -> str | None:
    """Why `body` does not answer the challenge `token` with one of `secrets`; None if it does.

    The text does not quote the body: it may come from a server that the caller must not read.
    """
    content = _parse_object(body)
    offered = None if content is None else content.get(_RESPONSE_MEMBER)
    if not isinstance(offered, str):
        return f"the response is not a JSON object with a string {_RESPONSE_MEMBER!r}"
    if not any(_is_equal(offered, _response_token(secret, token)) for secret in secrets):
        return f"{_RESPONSE_MEMBER} is not the HMAC-SHA256 of {TOKEN_PARAMETER} under the secret"
    return None


def _response_token(secret: str, token: str) -> str:
    digest = hmac.digest(secret.encode(), token.encode(), "sha256")
    return _ALGORITHM + b64encode(digest).decode()


def _is_equal(offered: str, expected: str) -> bool:
    # JSON can hold lone surrogates, which UTF-8 cannot encode.
    return hmac.compare_digest(offered.encode("utf-8", "surrogatepass"), expected.encode())


def _parse_object(text: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
