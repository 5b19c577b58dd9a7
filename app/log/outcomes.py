"""The outcomes of live deliveries: the records of `delivery_outcomes`.

A record has the outcome of one record of `delivery_log`. It is in the partition of its webhook,
with the event time as its timestamp and the headers `event-id`, `origin` and `server`. Its value
is a JSON object:

    {"partition": 3, "offset": 17, "eventId": "evt_1", "outcome": "failed", "attempts": 4,
     "status": 503, "reason": "HTTP 503 Service Unavailable", "time": "2026-11-21T08:04:32Z",
     "digest": "5a54b21bafaf1c25", "durationMs": 31.2}

`partition` and `offset` are those in the `delivery_log` of the data centre `origin`; `status` is
the last HTTP status or null; `reason` is null if it was delivered; `time` is the time of the
outcome. `digest` identifies the event in every data centre: 64 bits of BLAKE2b over its id, a zero
byte and its body. `durationMs` is the duration of the last attempt; it is absent if there was none.
Older versions wrote neither. A record may be repeated, after a crash also with
another outcome.

An event that waits for a scheduled retry has the outcome `failed` with `"retries": "pending"`. When
its retries end, a worker writes another record, with `"retries": "ended"`. Other records have no
such member.
"""

import json
import re
from enum import StrEnum
from typing import Any, Final, NamedTuple

from app.domain.delivery import LiveOutcome
from app.domain.windows import format_time, parse_time

_DIGEST: Final = re.compile("[0-9a-f]{16}")

_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode

_NUMBER_MAX: Final = 2**63 - 1
"""The largest offset of a log."""

REASON_CHARS_MAX: Final = 500
"""Longer reasons are cut, because there is one record for each event."""


class OutcomeRetries(StrEnum):
    """What an outcome says about the scheduled retries of its event."""

    PENDING = "pending"
    """A worker makes further attempts, so another outcome follows."""

    ENDED = "ended"
    """A worker wrote it, after the last of them."""


class DeliveryOutcome(NamedTuple):
    """The outcome of the record of `delivery_log` at `partition` and `offset`."""

    partition: int
    offset: int
    event_id: str
    outcome: LiveOutcome
    attempts: int
    status: int | None
    reason: str | None
    time_ms: int
    digest: int | None
    """See `lasting_digest`; None in outcomes of older versions."""

    duration_ms: float | None = None
    """The duration of the last attempt; None without one, and in outcomes of older versions."""

    retries: OutcomeRetries | None = None
    """None without scheduled retries, and in outcomes of older versions."""


def encode_outcome(outcome: DeliveryOutcome) -> bytes:
    """Return the value of its record."""
    status = "null" if outcome.status is None else outcome.status
    reason = "null" if outcome.reason is None else _quoted(outcome.reason[:REASON_CHARS_MAX])
    # Formatted in place: there is one for each event, and a JSON encoder takes three times as long.
    text = (
        f'{{"partition":{outcome.partition},"offset":{outcome.offset},'
        f'"eventId":{_quoted(outcome.event_id)},"outcome":"{outcome.outcome}",'
        f'"attempts":{outcome.attempts},"status":{status},"reason":{reason},'
        f'"time":"{format_time(outcome.time_ms)}"'
    )
    if outcome.digest is not None:
        text += f',"digest":"{outcome.digest:016x}"'
    if outcome.duration_ms is not None:
        text += f',"durationMs":{outcome.duration_ms:.1f}'
    if outcome.retries is not None:
        text += f',"retries":"{outcome.retries}"'
    return f"{text}}}".encode("utf-8", "surrogatepass")


def decode_outcome(value: bytes | None) -> DeliveryOutcome | None:
    """Return the outcome of a record's value; None if it is invalid."""
    try:
        members = json.loads(value or b"")
        return _outcome(members) if isinstance(members, dict) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _outcome(members: dict[str, Any]) -> DeliveryOutcome:
    return DeliveryOutcome(
        partition=whole_number(members["partition"]),
        offset=whole_number(members["offset"]),
        event_id=str(members["eventId"]),
        outcome=LiveOutcome(members["outcome"]),
        attempts=whole_number(members["attempts"]),
        status=None if members["status"] is None else whole_number(members["status"]),
        reason=None if members["reason"] is None else str(members["reason"]),
        time_ms=parse_time(members["time"]),
        digest=_digest(members.get("digest")),
        duration_ms=_duration_ms(members.get("durationMs")),
        retries=_retries(members.get("retries")),
    )


def _digest(text: str | None) -> int | None:
    if text is None:
        return None
    if not _DIGEST.fullmatch(text):
        raise ValueError(f"{text!r} is no digest")
    return int(text, 16)


def _duration_ms(value: object) -> float | None:
    return None if value is None else duration_ms(value)


def _retries(value: Any) -> OutcomeRetries | None:
    return None if value is None else OutcomeRetries(value)


def whole_number(value: object) -> int:
    """Return a number of a record's value.

    Raises:
        ValueError: it is no integer, negative, or has more than 63 bits.
    """
    if type(value) is not int or not 0 <= value <= _NUMBER_MAX:
        raise ValueError(f"{value!r} is no whole number")
    return value


def duration_ms(value: object) -> float:
    """Return a duration of a record's value.

    Raises:
        ValueError: it is no number, negative, or too large. JSON has integers of any size, and
            Python's parser accepts NaN and Infinity.
    """
    if type(value) not in (int, float) or not 0 <= value <= _NUMBER_MAX:  # type: ignore[operator]
        raise ValueError(f"{value!r} is no duration")
    return float(value)  # type: ignore[arg-type]
