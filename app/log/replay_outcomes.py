"""What replays brought: the records of `replay_outcomes`, and how they are read.

A record says what became of a stretch of one replay: of everything between two of its checkpoints.
It lies in the partition of its webhook, whose id is its key, with the time when it was written as
its timestamp. Its value is a JSON object:

    {"replayId": "rpl_1", "webhookId": "wh_1", "origin": "local", "source": "log", "epoch": 1,
     "start": 120400, "end": 137305,
     "hours": {"2026-11-21T06": {"delivered": 4070, "duplicates": 12, "failed": 1}},
     "time": "2026-11-21T08:10:02.000Z"}

`hours` counts events by the hour, UTC, of their own time; hours without any are not in it. The
offsets `[start, end)` are those of the topic that the replay reads in the data centre `origin`:
`delivery_log` for the source `log`, `delivery_archive` for `archive`.

It is written before the checkpoint at `end` is stored. So whoever goes on after a crash begins
again at `start`, and may come to another `end`: of records of one `replayId` and `start`, those of
the highest `epoch` (the number of the claim) count, and of these the last. Then no two that count
overlap. Where `end` of one is not `start` of the next, the log did not take what was between.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.hours import format_hour, parse_hour
from app.domain.model import Counts
from app.domain.options import Source
from app.domain.windows import format_time, parse_time


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """What became of the records `[start, end)` of a replay; `hours` by the hour of their time."""

    replay_id: str
    webhook_id: str
    origin: str
    source: Source
    epoch: int
    start: int
    end: int
    time_ms: int
    hours: Mapping[int, Counts] = field(default_factory=dict)


def encode_replay_outcome(outcome: ReplayOutcome) -> bytes:
    """The value of its record."""
    members: dict[str, Any] = {
        "replayId": outcome.replay_id,
        "webhookId": outcome.webhook_id,
        "origin": outcome.origin,
        "source": outcome.source,
        "epoch": outcome.epoch,
        "start": outcome.start,
        "end": outcome.end,
        "hours": {
            format_hour(hour): _members(outcome.hours[hour]) for hour in sorted(outcome.hours)
        },
        "time": format_time(outcome.time_ms),
    }
    return json.dumps(members, separators=(",", ":")).encode()


def _members(counts: Counts) -> dict[str, int]:
    return {
        "delivered": counts.delivered,
        "duplicates": counts.duplicates,
        "failed": counts.failed,
    }


def decode_replay_outcome(value: bytes | None) -> ReplayOutcome | None:
    """The outcome of a record's value; None when it is not one of ours."""
    try:
        members = json.loads(value or b"")
        return _outcome(members) if isinstance(members, dict) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _outcome(members: dict[str, Any]) -> ReplayOutcome:
    return ReplayOutcome(
        replay_id=str(members["replayId"]),
        webhook_id=str(members["webhookId"]),
        origin=str(members["origin"]),
        source=Source(members["source"]),
        epoch=_whole(members["epoch"]),
        start=_whole(members["start"]),
        end=_whole(members["end"]),
        time_ms=parse_time(members["time"]),
        hours={parse_hour(text): _counts(counts) for text, counts in members["hours"].items()},
    )


def _counts(members: dict[str, Any]) -> Counts:
    return Counts(
        *(_whole(members[name]) for name in ("delivered", "duplicates", "failed")),
    )


def _whole(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is no whole number")
    return value
