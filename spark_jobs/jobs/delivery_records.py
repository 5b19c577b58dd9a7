"""The records of `delivery_log`, `delivery_outcomes` and `replay_outcomes`: what is read of them.

The replay service writes them. Pure.

- `delivery_log`: what is owed. Key: the webhook's id. Timestamp: the event's own time. Headers:
  `event-id`, `event-type`, `origin`; of a name that is repeated, the last one counts.
- `delivery_outcomes`: what became of it live. Header `origin`: whose `delivery_log` the value's
  `partition` and `offset` are of. A record may come twice, also with another outcome.
- `replay_outcomes`: what a replay did between two checkpoints, by the hour of events. Of records of
  one `replayId` and `start`, those of the highest `epoch` count, and of these the last.
"""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from spark_jobs.errors import UndecodableRecord

DELIVERY_LOG: Final = "delivery_log"
DELIVERY_OUTCOMES: Final = "delivery_outcomes"
REPLAY_OUTCOMES: Final = "replay_outcomes"

WEBHOOK_CHARS_MAX: Final = 256
"""A longer key is no webhook's id, and nobody tells what became of its record."""

_DIGEST: Final = re.compile("[0-9a-f]{16}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_HOUR: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


class Outcome(StrEnum):
    """What became of an event that was to be delivered live."""

    DELIVERED = "delivered"
    FAILED = "failed"
    LEFT = "left"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class SettledDelivery:
    """What became of the record at `partition` and `offset` of its origin's `delivery_log`."""

    partition: int
    offset: int
    event_id: str
    outcome: Outcome
    attempts: int
    status: int | None
    settled_ms: int
    digest: int | None


class ReplayedHour(NamedTuple):
    """How many events of one hour a stretch of a replay brought, gave up, or had brought before."""

    hour: str
    """Of the events' own time, such as `2026-11-21T08`, UTC."""

    delivered: int
    duplicates: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReplayedStretch:
    """What a replay did from offset `start` up to a checkpoint; `epoch` is that of its claim."""

    replay_id: str
    webhook_id: str
    epoch: int
    start: int
    hours: tuple[ReplayedHour, ...]


def lasting_digest(event_id: str, value: bytes) -> int:
    """The 64 bits that name an event wherever a mirror has brought it, as a signed number.

    BLAKE2b over its id, a zero byte and its value: outcomes write them in hexadecimal, unsigned.
    """
    name = event_id.encode("utf-8", "surrogatepass") + b"\0"
    return _signed(blake2b(name + value, digest_size=8).digest())


def place_name(partition: int, offset: int) -> str:
    """The id of an event of `delivery_log` that brought none."""
    return f"{DELIVERY_LOG}-{partition}-{offset}"


def webhook_of(key: bytes | None) -> str:
    """Whom a record is owed to, or was.

    Raises:
        UndecodableRecord: its key is no webhook's id.
    """
    webhook_id = (key or b"").decode("utf-8", "replace")
    if not 1 <= len(webhook_id) <= WEBHOOK_CHARS_MAX:
        raise UndecodableRecord(
            f"its key is no webhook's id: it has {len(webhook_id)} characters, and 1 to "
            f"{WEBHOOK_CHARS_MAX} are allowed"
        )
    return webhook_id


def settled_delivery(value: bytes | None) -> SettledDelivery:
    """The value of a record of `delivery_outcomes`.

    Raises:
        UndecodableRecord: it is none.
    """
    members = _members(value)
    try:
        return SettledDelivery(
            partition=_whole(members, "partition", _INT_MAX),
            offset=_whole(members, "offset"),
            event_id=_text(members, "eventId"),
            outcome=Outcome(members["outcome"]),
            attempts=_whole(members, "attempts", _INT_MAX),
            status=None if members["status"] is None else _whole(members, "status", _INT_MAX),
            settled_ms=_time_ms(members),
            digest=_digest(members.get("digest")),
        )
    except KeyError as missing:
        raise UndecodableRecord(f"it has no member {missing}") from missing
    except (ValueError, TypeError) as error:
        raise UndecodableRecord(str(error)) from error


def replayed_stretch(value: bytes | None) -> ReplayedStretch:
    """The value of a record of `replay_outcomes`.

    Raises:
        UndecodableRecord: it is none.
    """
    members = _members(value)
    try:
        return ReplayedStretch(
            replay_id=_text(members, "replayId"),
            webhook_id=_text(members, "webhookId"),
            epoch=_whole(members, "epoch"),
            start=_whole(members, "start"),
            hours=_hours(members["hours"]),
        )
    except KeyError as missing:
        raise UndecodableRecord(f"it has no member {missing}") from missing


def _members(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise UndecodableRecord("it has no value")
    try:
        members = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"it is no JSON: {error}") from error
    if not isinstance(members, dict):
        raise UndecodableRecord(f"it is JSON, and no object but {type(members).__name__}")
    return members


def _whole(members: dict[str, Any], name: str, maximum: int = _LONG_MAX) -> int:
    value = members[name]
    if type(value) is not int or not 0 <= value <= maximum:
        raise UndecodableRecord(f"{name} is {value!r}, and no whole number up to {maximum}")
    return value


def _text(members: dict[str, Any], name: str) -> str:
    value = members[name]
    if not isinstance(value, str):
        raise UndecodableRecord(f"{name} is {value!r}, and no text")
    # Half a surrogate pair is a text in JSON, and none that a table can hold.
    return value.encode("utf-8", "replace").decode()


def _time_ms(members: dict[str, Any]) -> int:
    text = members["time"]
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise UndecodableRecord(f"time is {text!r}, and no time as RFC 3339 has it")
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError as error:
        raise UndecodableRecord(f"time is {text!r}, in no year from 1 to 9999 of UTC") from error
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _digest(text: object) -> int | None:
    if text is None:
        return None
    if not isinstance(text, str) or not _DIGEST.fullmatch(text):
        raise UndecodableRecord(f"digest is {text!r}, and no 16 digits of hexadecimal")
    return _signed(bytes.fromhex(text))


def _signed(digest: bytes) -> int:
    return int.from_bytes(digest, "big", signed=True)


def _hours(hours: object) -> tuple[ReplayedHour, ...]:
    if not isinstance(hours, dict):
        raise UndecodableRecord(f"hours is {hours!r}, and no object")
    return tuple(_replayed_hour(_hour(hour), counts) for hour, counts in hours.items())


def _hour(hour: str) -> str:
    try:
        if _HOUR.fullmatch(hour):
            datetime.fromisoformat(hour)
            return hour
    except ValueError:
        pass
    raise UndecodableRecord(f"{hour!r} in hours is no hour, such as 2026-11-21T08")


def _replayed_hour(hour: str, counts: object) -> ReplayedHour:
    if not isinstance(counts, dict):
        raise UndecodableRecord(f"{hour} in hours is {counts!r}, and no object")
    return ReplayedHour(
        hour, *(_whole(counts, name, _INT_MAX) for name in ("delivered", "duplicates", "failed"))
    )
