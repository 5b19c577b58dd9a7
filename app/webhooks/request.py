"""The request of a delivery attempt: its headers, and its bytes on the wire.

Source: Standard Webhooks 1.0.0, "Webhook headers"; RFC 9110 section 5.5; RFC 9112 section 3.
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import urlencode

from app.domain.endpoint_options import FRAMING_HEADERS
from app.domain.windows import format_time
from app.webhooks.guard import CheckedUrl
from app.webhooks.signing import sign_with_each

USER_AGENT: Final = "rewind"
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HeaderRefused(ValueError):
    """A header that could not be sent unchanged."""


def webhook_headers(
    secrets: Sequence[str],
    event_id: str,
    timestamp_s: int,
    body: bytes,
    replay_id: str | None = None,
    *,
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The headers of an attempt at `timestamp_s`, signed with each of `secrets`.

    `event_id` is the same in all attempts and replays: receivers deduplicate by it. `replay_id`
    marks replayed events. `extra` adds headers, such as `webhook-batch-size`, and replaces none of
    the others.
    """
    headers = {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "webhook-id": event_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": sign_with_each(secrets, event_id, timestamp_s, body),
    }
    if replay_id is not None:
        headers["webhook-replay-id"] = replay_id
    return headers if extra is None else {**extra, **headers}


def rewind_event_body(event_type: str, webhook_id: str, now_ms: int) -> bytes:
    """The body of an event that Rewind itself sends to a webhook, such as a ping."""
    event = {
        "type": event_type,
        "timestamp": format_time(now_ms),
        "data": {"webhookId": webhook_id},
    }
    return json.dumps(event, separators=(",", ":")).encode()


def encode_post(url: CheckedUrl, headers: Mapping[str, str], body: bytes) -> bytes:
    """The bytes of a POST of `body` to `url`.

    Raises:
        HeaderRefused: a name or value could end its header or start another.
    """
    lines = [_request_line(url)]
    _write_headers(lines, headers)
    lines.append(f"content-length: {len(body)}\r\n\r\n")
    return "".join(lines).encode("ascii") + body


def encode_get(url: CheckedUrl, query: Mapping[str, str], headers: Mapping[str, str]) -> bytes:
    """The bytes of a GET of `url`, with `query` added to its query.

    Raises:
        HeaderRefused: a name or value could end its header or start another.
    """
    separator = "&" if "?" in url.path_and_query else "?"
    path = f"{url.path_and_query}{separator}{urlencode(query)}"
    lines = [f"GET {path} HTTP/1.1\r\nhost: {url.origin.header}\r\n"]
    _write_headers(lines, headers)
    lines.append("\r\n")
    return "".join(lines).encode("ascii")


def _write_headers(lines: list[str], headers: Mapping[str, str]) -> None:
    for name, value in headers.items():
        _check_name(name)
        # Faster than a regular expression: this runs for every event.
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise HeaderRefused(
                f"header {name} is {value[:100]!r}; allowed is printable ASCII without outer spaces"
            )
        lines.append(f"{name}: {value}\r\n")


@lru_cache(maxsize=1024)
def _request_line(url: CheckedUrl) -> str:
    return f"POST {url.path_and_query} HTTP/1.1\r\nhost: {url.origin.header}\r\n"


@lru_cache(maxsize=4096)
def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name.lower() in FRAMING_HEADERS:
        framing = ", ".join(sorted(FRAMING_HEADERS))
        raise HeaderRefused(f"header name is {name[:100]!r}; allowed is a token, none of {framing}")
