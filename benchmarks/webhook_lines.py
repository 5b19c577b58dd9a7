"""Lines of the table for the webhook sender: events/s, compared with a bare asyncio socket."""

from pathlib import Path
from typing import Final

from benchmarks import webhook_sender
from benchmarks.scale import Scale
from benchmarks.table import Baseline, Line, Target, at_least, share_at_least
from benchmarks.webhook_sender import BASELINE, EVENTS_IN_BATCH, Row

ALONE: Final = "sender"
OTHERS_HANG: Final = "sender, 128 others hang"
SHARE_MIN: Final = 0.8
"""While a receiver hangs, the others keep at least this share of their rate."""


def measure(scale: Scale, _: Path) -> list[Line]:
    """Measure each case in events/s; the bare socket's rates are the baselines."""
    rows = webhook_sender.measure(scale.webhook_s, scale.rounds)
    return [_line(row, rows) for row in rows if row.name != BASELINE]


def _line(row: Row, rows: list[Row]) -> Line:
    name = f"{row.name}, {row.in_flight} in flight"
    events_per_s = row.posts_per_s * row.events_per_post
    return Line(name, events_per_s, "events/s", _baseline(row, rows), _target(row))


def _baseline(row: Row, rows: list[Row]) -> Baseline:
    wanted = ALONE if row.name == OTHERS_HANG else BASELINE
    found = next(each for each in rows if (each.name, each.in_flight) == (wanted, row.in_flight))
    if row.name == OTHERS_HANG:
        return Baseline("sender, none hangs", found.posts_per_s)
    return Baseline("bare asyncio socket, 1 each", found.posts_per_s)


def _target(row: Row) -> Target | None:
    if row.name == OTHERS_HANG:
        return share_at_least(SHARE_MIN)
    if row.name == ALONE and row.in_flight > 1:
        return at_least(5_000)
    if row.events_per_post == EVENTS_IN_BATCH:
        return at_least(100_000)
    return None
