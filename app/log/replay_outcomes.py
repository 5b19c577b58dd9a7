"""The outcomes of replays: the records of `replay_outcomes`.

A record has the outcome of one replay between two of its checkpoints. It is in the partition of
its webhook, whose id is its key; its timestamp is the time when it was written. Its value is a
JSON object:

    {"replayId": "rpl_1", "webhookId": "wh_1", "origin": "local", "source": "log", "epoch": 1,
     "start": 120400, "end": 137305,
     "hours": {"2026-11-21T06": {"delivered": 4070, "duplicates": 12, "failed": 1}},
     "time": "2026-11-21T08:10:02.000Z"}

`hours` counts events by the hour, UTC, of their own time; hours without events are omitted. The
offsets `[start, end)` are those of the topic that the replay reads in the data centre `origin`:
`delivery_log` for the source `log`, `delivery_archive` for `archive`.

It is written before the checkpoint at `end` is stored. After a crash the replay resumes at `start`,
and may reach another `end`. Of the records with one `replayId` and `start`, those of the highest
`epoch` (the number of the claim) count, and of these the last. So the counted records do not
overlap. Where `end` of one is not `start` of the next, the record between was not written.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.domain.hours import format_hour
from app.domain.model import Counts
from app.domain.options import Source
from app.domain.windows import format_time


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """The outcome of the offsets `[start, end)` of a replay; `hours` are those of event time."""

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
    """Return the value of its record."""
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
