"""The measurements of the webhook sender as lines of the table."""

from pathlib import Path
from typing import Final

from benchmarks import webhook_sender
from benchmarks.scale import Scale
from benchmarks.table import Baseline, Line, Target, at_least, share_at_least
from benchmarks.webhook_sender import BASELINE, EVENTS_IN_BATCH, Row

ALONE: Final = "sender"
BESIDE_A_SLOW_ONE: Final = "sender, 128 more stuck elsewhere"
UNHINDERED: Final = 0.8
"""A receiver that hangs may cost the others this much of their rate, which is noise here."""


def measure(scale: Scale, _: Path) -> list[Line]:
    """Events/s of each case; the bare socket's own lines are the baselines."""
    rows = webhook_sender.measure(scale.webhook_s, scale.rounds)
    return [_line(row, rows) for row in rows if row.name != BASELINE]


def _line(row: Row, rows: list[Row]) -> Line:
    name = f"{row.name}, {row.in_flight} in flight"
    events_per_s = row.posts_per_s * row.events_per_post
    return Line(name, events_per_s, "events/s", _baseline(row, rows), _target(row))


def _baseline(row: Row, rows: list[Row]) -> Baseline:
    wanted = ALONE if row.name == BESIDE_A_SLOW_ONE else BASELINE
    found = next(each for each in rows if (each.name, each.in_flight) == (wanted, row.in_flight))
    if row.name == BESIDE_A_SLOW_ONE:
        return Baseline("sender, none stuck", found.posts_per_s)
    return Baseline("bare asyncio socket, 1 each", found.posts_per_s)


def _target(row: Row) -> Target | None:
    if row.name == BESIDE_A_SLOW_ONE:
        return share_at_least(UNHINDERED)
    if row.name == ALONE and row.in_flight > 1:
        return at_least(5_000)
    if row.events_per_post == EVENTS_IN_BATCH:
        return at_least(100_000)
    return None
