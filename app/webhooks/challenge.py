"""What the owner of a webhook proves with that its receiver is theirs: a ping, or a challenge.

A ping is a signed POST that the receiver takes. A challenge (Twitter's "challenge-response
check", CRC) is a GET that only somebody who has the secret can answer.

The key of a challenge's answer is the secret's text, `whsec_` included, as Twitter's is the text
of the consumer secret. Signatures have the bytes behind that text for a key. The two must differ:
a receiver answers everybody's challenges, so under one key anybody could have it sign an event.

Source: Standard Webhooks 1.0.0; X, "Securing webhooks", challenge-response checks.
"""

import hmac
import json
from base64 import b64encode
from collections.abc import Iterable
from typing import Any, Final

from app.domain.windows import format_time

PING_TYPE: Final = "webhook.ping"
PING_ID_PREFIX: Final = "ping_"

TOKEN_PARAMETER: Final = "crc_token"  # noqa: S105  the name of a token is none
NONCE_PARAMETER: Final = "nonce"

_ALGORITHM: Final = "sha256="
_ANSWER_MEMBER: Final = "response_token"


def ping_body(webhook_id: str, now_ms: int) -> bytes:
    """The body of a ping to `webhook_id`: an event as any other, of a type of its own."""
    ping = {
        "type": PING_TYPE,
        "timestamp": format_time(now_ms),
        "data": {"webhookId": webhook_id},
    }
    return json.dumps(ping, separators=(",", ":")).encode()


def is_ping(message_id: str, body: bytes) -> bool:
    """Whether this is a ping and no event of the platform's."""
    # Looked at first: receivers ask this of every event, and parsing is what costs.
    if not message_id.startswith(PING_ID_PREFIX):
        return False
    ping = _object(body)
    return ping is not None and ping.get("type") == PING_TYPE


def crc_answer(secret: str, token: str) -> bytes:
    """The body that answers the challenge `token`, for a receiver that has `secret`."""
    return json.dumps({_ANSWER_MEMBER: _response_token(secret, token)}).encode()


def crc_problem(secrets: Iterable[str], token: str, answer: bytes) -> str | None:
    """Why `answer` does not answer the challenge `token` under one of `secrets`; None if it does.

    The words do not repeat the answer: its receiver may be one that our caller must not read.
    """
    content = _object(answer)
    offered = None if content is None else content.get(_ANSWER_MEMBER)
    if not isinstance(offered, str):
        return f"the answer is no JSON object with a text {_ANSWER_MEMBER!r}"
    if not any(_is_equal(offered, _response_token(secret, token)) for secret in secrets):
        return f"{_ANSWER_MEMBER} is not the HMAC-SHA256 of {TOKEN_PARAMETER} under the secret"
    return None


def _response_token(secret: str, token: str) -> str:
    digest = hmac.digest(secret.encode(), token.encode(), "sha256")
    return _ALGORITHM + b64encode(digest).decode()


def _is_equal(offered: str, expected: str) -> bool:
    # JSON can hold lone surrogates, which have no UTF-8 of their own.
    return hmac.compare_digest(offered.encode("utf-8", "surrogatepass"), expected.encode())


def _object(text: bytes) -> dict[str, Any] | None:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None
