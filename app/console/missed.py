"""What a webhook missed, by hour, with where replays of it are asked for. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from app.console.addresses import NEW_REPLAY, address
from app.console.receiver_plots import BarPlot, missed_plot
from app.domain.missed import MissedHour
from app.domain.options import Only
from app.domain.windows import format_time


class MissedRow(NamedTuple):
    """An hour, and where a replay of it is asked for."""

    hour: MissedHour
    href: str


@dataclass(frozen=True, slots=True)
class MissedStretch:
    """From the first to the last hour that was missed and not replayed.

    `events` were missed in hours that were not replayed, `again` in hours between that were.
    """

    from_ms: int
    to_ms: int
    events: int
    again: int
    href: str


@dataclass(frozen=True, slots=True)
class Missed:
    """All hours in which something was missed, the latest first; `left` is None if none is left."""

    rows: tuple[MissedRow, ...]
    events: int
    left: MissedStretch | None
    plot: BarPlot


def missed_of(
    webhook_id: str, hours: Sequence[MissedHour], from_ms: int, present_ms: int
) -> Missed:
    """What was missed since `from_ms`; `hours` are the earliest first.

    No replay reaches beyond the present, so none of the hour that is not over does.
    """
    rows = [
        MissedRow(hour, _href(webhook_id, hour.start_ms, min(hour.end_ms, present_ms)))
        for hour in reversed(hours)
    ]
    return Missed(
        tuple(rows),
        sum(hour.missed for hour in hours),
        _left(webhook_id, hours, present_ms),
        missed_plot(hours, from_ms, present_ms),
    )


def _left(webhook_id: str, hours: Sequence[MissedHour], present_ms: int) -> MissedStretch | None:
    left = [hour for hour in hours if not hour.is_replayed]
    if not left:
        return None
    from_ms, to_ms = left[0].start_ms, min(left[-1].end_ms, present_ms)
    between = [hour for hour in hours if hour.is_replayed and from_ms <= hour.start_ms < to_ms]
    return MissedStretch(
        from_ms,
        to_ms,
        sum(hour.missed for hour in left),
        sum(hour.missed for hour in between),
        _href(webhook_id, from_ms, to_ms),
    )


def _href(webhook_id: str, from_ms: int, to_ms: int) -> str:
    fields = {
        "webhookId": webhook_id,
        "from": format_time(from_ms),
        "to": format_time(to_ms),
        "only": str(Only.FAILED),
    }
    return address(NEW_REPLAY, fields)
