"""The delivery attempts that an outcome does not describe: the records of `delivery_attempts`.

An event that is delivered at its first attempt has only its outcome. Of any other one, each failed
attempt is a record here, and a copy of its outcome is the last record. A record is in the
partition of its webhook, with the event time as its timestamp and the headers `event-id`, `origin`
and `server`. Its value is an outcome (see `outcomes`), or a JSON object:

    {"partition": 3, "offset": 17, "eventId": "evt_1", "attempt": 1, "status": 503,
     "reason": "HTTP 503 Service Unavailable", "response": "overloaded", "durationMs": 31.2,
     "time": "2026-11-21T08:04:32.000Z", "nextTime": "2026-11-21T08:04:37.000Z"}

`status` is null without a response, `response` is the first KB of its body, and `nextTime` is when
a retry is due, or null. A record may be repeated.
"""

import json
from dataclasses import dataclass
from typing import Any

from app.domain.windows import format_time, parse_time
from app.log.outcomes import REASON_CHARS_MAX, duration_ms, whole_number


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """A failed attempt of the record of `delivery_log` at `partition` and `offset`.

    `time_ms` is when it ended.
    """

    partition: int
    offset: int
    event_id: str
    number: int
    status: int | None
    reason: str
    response: str | None
    duration_ms: float
    time_ms: int
    next_ms: int | None


def encode_attempt(attempt: FailedAttempt) -> bytes:
    """Return the value of its record."""
    members: dict[str, Any] = {
        "partition": attempt.partition,
        "offset": attempt.offset,
        "eventId": attempt.event_id,
        "attempt": attempt.number,
        "status": attempt.status,
        "reason": attempt.reason[:REASON_CHARS_MAX],
        "response": attempt.response,
        "durationMs": round(attempt.duration_ms, 1),
        "time": format_time(attempt.time_ms),
        "nextTime": None if attempt.next_ms is None else format_time(attempt.next_ms),
    }
    return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8", "surrogatepass"
    )


def decode_attempt(value: bytes | None) -> FailedAttempt | None:
    """Return the attempt of a record's value; None if it is invalid, or an outcome."""
    try:
        members = json.loads(value or b"")
        return _attempt(members) if isinstance(members, dict) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _attempt(members: dict[str, Any]) -> FailedAttempt:
    next_time = members["nextTime"]
    response = members["response"]
    return FailedAttempt(
        partition=whole_number(members["partition"]),
        offset=whole_number(members["offset"]),
        event_id=str(members["eventId"]),
        number=whole_number(members["attempt"]),
        status=None if members["status"] is None else whole_number(members["status"]),
        reason=str(members["reason"]),
        response=None if response is None else str(response),
        duration_ms=duration_ms(members["durationMs"]),
        time_ms=parse_time(members["time"]),
        next_ms=None if next_time is None else parse_time(next_time),
    )
