"""An event to publish, and an event as read from the log."""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class NewEvent(NamedTuple):
    """An event to publish.

    `webhook_id` becomes the record's key; None selects a random partition, for events that are not
    addressed to a webhook. `time_ms` is the event time and becomes the record's timestamp; `body`
    is sent to receivers unchanged. With `account_id`, only webhooks of this account may receive it.
    """

    webhook_id: str | None
    event_id: str
    event_type: str
    time_ms: int
    body: bytes
    account_id: str | None = None


class LoggedEvent(NamedTuple):
    """An event as read from the log."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    event_id: str
    event_type: str
    value: bytes
    origin: str = ""
    """The data centre where it was published; empty if unknown."""

    audit: bytes | None = None
    """The mark of an audited producer: see `logbroker.client.audit_format.mark`."""

    account_id: str | None = None
    """The only account whose webhooks may receive it; None without the header. An empty one is that
    of no account."""


ACCOUNT_HEADER: Final = "account-id"


def account_of(headers: Mapping[str, bytes | str | None]) -> str | None:
    """The account that a record's headers name; None without the header."""
    if ACCOUNT_HEADER not in headers:
        return None
    return header_text(headers[ACCOUNT_HEADER])


def header_text(value: bytes | str | None) -> str:
    """Return the text of a record header; empty without a header."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def is_presentable(event_id: str) -> bool:
    """Whether an event id can be sent in an HTTP header unchanged."""
    printable = event_id.isascii() and event_id.isprintable()
    return bool(event_id) and printable and event_id == event_id.strip()


def place_name(topic: str, partition: int, offset: int) -> str:
    """Return an id for an event without one: its permanent position in the log."""
    return f"{topic}-{partition}-{offset}"


def members_of(value: bytes) -> dict[str, Any]:
    """Return the members of a JSON object; none if the value is not one."""
    try:
        members = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return members if isinstance(members, dict) else {}


def printable_text(member: object) -> str:
    """Return a member that is a printable text; empty if it is not."""
    # A lone surrogate is valid in JSON, but cannot be encoded as UTF-8.
    return member if isinstance(member, str) and member.isprintable() else ""
