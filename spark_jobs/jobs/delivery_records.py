"""Parses the records of `delivery_log`, `delivery_outcomes` and `replay_outcomes`. Pure.

The replay service writes them.

- `delivery_log`: deliveries. Key: the webhook's id. Timestamp: the event time. Headers: `event-id`,
  `event-type`, `origin`, `account-id`; the last header of a name counts.
- `delivery_outcomes`: results of live deliveries. The value's `partition` and `offset` are those of
  the delivery in the `delivery_log` of header `origin`; header `server` names the process that
  attempted it. There may be several records per delivery, with different outcomes: one that waits
  for a scheduled retry has `retries` "pending", and when its retries have ended another record.
- `replay_outcomes`: what a replay did between two checkpoints, by the hour of events. Of records
  with the same `replayId` and `start`, the highest `epoch` counts, and within it the last record.
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
"""A longer key is not a webhook id, and its record has no outcome."""

_DIGEST: Final = re.compile("[0-9a-f]{16}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_HOUR: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d", re.ASCII)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1


class Outcome(StrEnum):
    """The result of a live delivery."""

    DELIVERED = "delivered"
    FAILED = "failed"
    SKIPPED = "left"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """The outcome of the delivery at `partition` and `offset` of its origin's `delivery_log`."""

    partition: int
    offset: int
    event_id: str
    outcome: Outcome
    attempts: int
    status: int | None
    time_ms: int
    digest: int | None
    reason: str | None = None
    """Why it was not delivered."""

    duration_ms: float | None = None
    """The duration of the last attempt; None without one, and in outcomes of older versions."""

    is_waiting: bool = False
    """Whether it waits for a scheduled retry, so that another record follows."""


class ReplayHour(NamedTuple):
    """How many events of an hour a replay delivered, skipped as duplicates, or failed to send."""

    hour: str
    """The hour of event time, such as `2026-11-21T08`, UTC."""

    delivered: int
    duplicates: int
    failed: int


@dataclass(frozen=True, slots=True)
class ReplayOutcomeRecord:
    """What a replay did from offset `start` to a checkpoint; `epoch` is its lease epoch."""

    replay_id: str
    webhook_id: str
    epoch: int
    start: int
    hours: tuple[ReplayHour, ...]


def event_digest(event_id: str, value: bytes) -> int:
    """A 64-bit signed digest that identifies an event in all data centres.

    BLAKE2b over its id, a zero byte and its value; outcomes have it in hexadecimal, unsigned.
    """
    name = event_id.encode("utf-8", "surrogatepass") + b"\0"
    return _signed(blake2b(name + value, digest_size=8).digest())


def default_event_id(partition: int, offset: int) -> str:
    """The id of an event of `delivery_log` that has none of its own."""
    return f"{DELIVERY_LOG}-{partition}-{offset}"


def parse_webhook_id(key: bytes | None) -> str:
    """The webhook of a delivery.

    Raises:
        UndecodableRecord: the key is not a webhook id.
    """
    webhook_id = (key or b"").decode("utf-8", "replace")
    if not 1 <= len(webhook_id) <= WEBHOOK_CHARS_MAX:
        raise UndecodableRecord(
            f"key is not a webhook id: it has {len(webhook_id)} characters; allowed are 1 to "
            f"{WEBHOOK_CHARS_MAX}"
        )
    return webhook_id


def parse_delivery_outcome(value: bytes | None) -> OutcomeRecord:
    """The value of a record of `delivery_outcomes`.

    Raises:
        UndecodableRecord: it is malformed.
    """
    members = _members(value)
    try:
        return OutcomeRecord(
            partition=_integer(members, "partition", _INT_MAX),
            offset=_integer(members, "offset"),
            event_id=_text(members, "eventId"),
            outcome=Outcome(members["outcome"]),
            attempts=_integer(members, "attempts", _INT_MAX),
            status=None if members["status"] is None else _integer(members, "status", _INT_MAX),
            time_ms=_time_ms(members),
            digest=_digest(members.get("digest")),
            reason=None if members["reason"] is None else _text(members, "reason"),
            duration_ms=_duration_ms(members.get("durationMs")),
            is_waiting=_is_waiting(members.get("retries")),
        )
    except KeyError as missing:
        raise UndecodableRecord(f"missing member {missing}") from missing
    except (ValueError, TypeError) as error:
        raise UndecodableRecord(str(error)) from error


def parse_replay_outcome(value: bytes | None) -> ReplayOutcomeRecord:
    """The value of a record of `replay_outcomes`.

    Raises:
        UndecodableRecord: it is malformed.
    """
    members = _members(value)
    try:
        return ReplayOutcomeRecord(
            replay_id=_text(members, "replayId"),
            webhook_id=_text(members, "webhookId"),
            epoch=_integer(members, "epoch"),
            start=_integer(members, "start"),
            hours=_hours(members["hours"]),
        )
    except KeyError as missing:
        raise UndecodableRecord(f"missing member {missing}") from missing


def _members(value: bytes | None) -> dict[str, Any]:
    if value is None:
        raise UndecodableRecord("no value")
    try:
        members = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"not JSON: {error}") from error
    if not isinstance(members, dict):
        raise UndecodableRecord(f"not a JSON object but {type(members).__name__}")
    return members


def _integer(members: dict[str, Any], name: str, maximum: int = _LONG_MAX) -> int:
    value = members[name]
    if type(value) is not int or not 0 <= value <= maximum:
        raise UndecodableRecord(f"{name} is {value!r}; allowed are integers from 0 to {maximum}")
    return value


def _text(members: dict[str, Any], name: str) -> str:
    value = members[name]
    if not isinstance(value, str):
        raise UndecodableRecord(f"{name} is {value!r}; allowed are strings")
    # JSON allows lone surrogates, which Arrow strings do not.
    return value.encode("utf-8", "replace").decode()


def _time_ms(members: dict[str, Any]) -> int:
    text = members["time"]
    if not isinstance(text, str) or not _TIME.fullmatch(text):
        raise UndecodableRecord(f"time is {text!r}; allowed are RFC 3339 times")
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError as error:
        raise UndecodableRecord(
            f"time is {text!r}; allowed are the years 1 to 9999, UTC"
        ) from error
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _digest(text: object) -> int | None:
    if text is None:
        return None
    if not isinstance(text, str) or not _DIGEST.fullmatch(text):
        raise UndecodableRecord(f"digest is {text!r}; allowed are 16 lowercase hexadecimal digits")
    return _signed(bytes.fromhex(text))


def _duration_ms(value: Any) -> float | None:
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= _LONG_MAX:
        raise UndecodableRecord(f"durationMs is {value!r}; allowed are numbers from 0")
    return float(value)


def _is_waiting(retries: object) -> bool:
    if retries not in (None, "pending", "ended"):
        raise UndecodableRecord(f'retries is {retries!r}; allowed are "pending" and "ended"')
    return retries == "pending"


def _signed(digest: bytes) -> int:
    return int.from_bytes(digest, "big", signed=True)


def _hours(hours: object) -> tuple[ReplayHour, ...]:
    if not isinstance(hours, dict):
        raise UndecodableRecord(f"hours is {hours!r}; allowed is an object")
    return tuple(_replayed_hour(_hour(hour), counts) for hour, counts in hours.items())


def _hour(hour: str) -> str:
    try:
        if _HOUR.fullmatch(hour):
            datetime.fromisoformat(hour)
            return hour
    except ValueError:
        pass
    raise UndecodableRecord(f"hours has {hour!r}; allowed are hours such as 2026-11-21T08")


def _replayed_hour(hour: str, counts: object) -> ReplayHour:
    if not isinstance(counts, dict):
        raise UndecodableRecord(f"{hour} in hours is {counts!r}; allowed is an object")
    return ReplayHour(
        hour, *(_integer(counts, name, _INT_MAX) for name in ("delivered", "duplicates", "failed"))
    )
