"""The request of one attempt: its headers, and its bytes on the wire.

Source: Standard Webhooks 1.0.0, "Webhook headers"; RFC 9110 section 5.5; RFC 9112 section 3.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlencode

from app.webhooks.guard import Target
from app.webhooks.signing import sign_under_each

USER_AGENT: Final = "rewind"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FRAMING: Final = frozenset(
    (
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
"""Headers that say where a request goes and where it ends: only this module writes these."""


class HeaderRefused(ValueError):
    """A header that would not reach the receiver as it was meant."""


def webhook_headers(
    secrets: Sequence[str],
    event_id: str,
    timestamp_s: int,
    body: bytes,
    replay_id: str | None = None,
    *,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers of one attempt, made at `timestamp_s` and signed under each of `secrets`.

    `event_id` stays the same over all attempts and replays: a receiver drops by it what it
    has already. `replay_id` tells a replayed event from a live one. `extra` holds further
    headers, such as `webhook-batch-size`; those above it cannot replace.
    """
    headers = {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": sign_under_each(secrets, event_id, timestamp_s, body),
    }
    if replay_id is not None:
        headers["webhook-replay-id"] = replay_id
    return headers if extra is None else {**extra, **headers}


def encode_post(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """The bytes of a POST to `target`.

    Raises:
        HeaderRefused: a name or value could end its header, or begin another.
    """
    lines = [_opening(target)]
    _write_headers(lines, headers)
    lines.append(f"content-length: {len(body)}\r\n\r\n")
    return "".join(lines).encode("ascii") + body


def encode_get(target: Target, query: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
    """The bytes of a GET of `target`, with `query` behind the query it has.

    Raises:
        HeaderRefused: a name or value could end its header, or begin another.
    """
    joint = "&" if "?" in target.path_and_query else "?"
    path = f"{target.path_and_query}{joint}{urlencode(query)}"
    lines = [f"GET {path} HTTP/1.1\r\nhost: {target.origin.header}\r\n"]
    _write_headers(lines, headers)
    lines.append("\r\n")
    return "".join(lines).encode("ascii")


def _write_headers(lines: list[str], headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        _check_name(name)
        # One call for each rule instead of a regular expression: this runs for every event.
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise HeaderRefused(
                f"header {name} is {value[:100]!r}; allowed is printable ASCII without outer spaces"
            )
        lines.append(f"{name}: {value}\r\n")


@lru_cache(maxsize=1024)
def _opening(target: Target) -> str:
    return f"POST {target.path_and_query} HTTP/1.1\r\nhost: {target.origin.header}\r\n"


@lru_cache(maxsize=256)
def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.lower() in _FRAMING:
        framing = ", ".join(sorted(_FRAMING))
        raise HeaderRefused(f"header name is {name[:100]!r}; allowed is a token, none of {framing}")
