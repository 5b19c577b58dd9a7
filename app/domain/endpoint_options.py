"""Options of the requests to one webhook: further headers, authentication, timeout, live limits."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

HEADERS_MAX: Final = 20
HEADERS_BYTES_MAX: Final = 4_096
"""Of all names and values together: many servers accept heads of up to 8 KiB."""

HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]{1,64}")
"""A token of RFC 9110, section 5.6.2, in lower case."""

RESERVED_PREFIXES: Final = ("webhook-", "proxy-")
FRAMING_HEADERS: Final = frozenset(
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
"""Headers that control routing and framing: only the encoder of requests writes them."""

RESERVED_HEADERS: Final = FRAMING_HEADERS | {"content-encoding", "content-type", "user-agent"}
"""Headers that every request sets itself, or that control the connection."""

AUTHORIZATION: Final = "authorization"


@dataclass(frozen=True, slots=True)
class BasicAuthentication:
    """User name and password (RFC 7617)."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class BearerAuthentication:
    """A token that does not expire by itself (RFC 6750)."""

    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Credentials for which the server at `token_url` issues tokens (RFC 6749, section 4.4).

    They are sent in the token request's body if `in_body`, otherwise as its basic authentication.
    """

    token_url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    audience: str | None = None
    in_body: bool = False


Authentication = BasicAuthentication | BearerAuthentication | ClientCredentials


class Ordering(StrEnum):
    """In which order live delivery and recovery replays send the events of a webhook."""

    NONE = "none"
    """Several at a time; a recovery replay sends earlier events next to new ones."""

    STRICT = "strict"
    """In the order of the log, one at a time; new events wait for a recovery replay."""


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """How requests are sent to a webhook, where it differs from the operator's settings.

    `headers` have names in lower case, and are not among `RESERVED_HEADERS`. `timeout_s` limits an
    attempt; `max_events_per_second` and `max_in_flight` limit live delivery; `retry_schedule_s` are
    the pauses between the attempts of an event, see `RetrySchedule`. None is the setting.
    `ordering` is about live delivery and recovery replays.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    authentication: Authentication | None = None
    timeout_s: int | None = None
    max_events_per_second: int | None = None
    max_in_flight: int | None = None
    retry_schedule_s: tuple[int, ...] | None = None
    ordering: Ordering = Ordering.NONE


NO_OPTIONS: Final = EndpointOptions()


class HeaderNotAllowed(ValueError):
    """A header that a webhook must not have; the message says what is allowed, without values."""


def check_header(name: str, value: str) -> None:
    """Return if a webhook may have this header; the name is in lower case.

    Raises:
        HeaderNotAllowed: it is not a header, or belongs to the request itself.
    """
    if not HEADER_NAME.fullmatch(name):
        raise HeaderNotAllowed("names of 1 to 64 characters of a token (RFC 9110)")
    if name in RESERVED_HEADERS or name.startswith(RESERVED_PREFIXES):
        reserved = ", ".join(
            (*sorted(RESERVED_HEADERS), *(f"{each}*" for each in RESERVED_PREFIXES))
        )
        raise HeaderNotAllowed(f"names other than {reserved}")
    if not is_header_value(value):
        raise HeaderNotAllowed(f"for {name}: printable ASCII without outer spaces, not empty")


def is_header_value(value: str) -> bool:
    """Whether a text can be sent as a header's value, and back, unchanged."""
    return bool(value) and value.isascii() and value.isprintable() and value == value.strip()


def check_headers(headers: Mapping[str, str]) -> None:
    """Return if a webhook may have these headers together.

    Raises:
        HeaderNotAllowed: they are too many or too long, or one is not allowed.
    """
    for name, value in headers.items():
        check_header(name, value)
    size_bytes = sum(len(name) + len(value) for name, value in headers.items())
    if len(headers) > HEADERS_MAX or size_bytes > HEADERS_BYTES_MAX:
        raise HeaderNotAllowed(
            f"up to {HEADERS_MAX} headers with {HEADERS_BYTES_MAX} bytes of names and values"
        )


def merge_headers(
    headers: Mapping[str, str], changes: Mapping[str, str | None] | None
) -> dict[str, str]:
    """The headers after changes: None as a value removes a header, None as a whole all of them.

    Source: JSON Merge Patch, RFC 7396.
    """
    if changes is None:
        return {}
    merged = {**headers, **changes}
    return {name: value for name, value in merged.items() if value is not None}
