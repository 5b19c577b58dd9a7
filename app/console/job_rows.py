"""Jobs as rows of a list, and how many there are: for pages, and for what keeps them true."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, cast

from jinja2 import Environment
from markupsafe import Markup, escape

from app.api.replay_progress import event_id
from app.console.formats import NOTHING, count, duration, rate
from app.domain.model import Replay
from app.domain.progress import progress
from app.domain.restores import awaited_in_words
from app.domain.states import TERMINAL, ReplayState

ALL: Final = "all"
"""The part of the counters that stands for all states together."""

ENDED_MAX: Final = 2_000
"""Rows of ended replays that are kept, of about a kilobyte each."""

_TEMPLATE: Final = "_job_parts.html"

_HELD: Final = frozenset((ReplayState.STARTED, ReplayState.ONGOING))


class _Macros(Protocol):
    """What the template has for a row and its cells."""

    def row(
        self,
        replay: Replay,
        version: str,
        parts: Mapping[str, str],
        present_ms: int,
        has_ended: bool,
        style: "RowStyle",
    ) -> Markup: ...

    def state(self, replay: Replay, words: str | None) -> Markup: ...

    def progress(self, replay: Replay, share: float) -> Markup: ...

    def failures(self, number: int) -> Markup: ...

    def heartbeat(
        self, at_ms: int, present_ms: int, late_from_ms: int, lease_s: float
    ) -> Markup: ...


@dataclass(frozen=True, slots=True)
class RowStyle:
    """What the rows of a list have: a box to tick, the webhook, its account."""

    boxes: bool
    accounts: bool
    webhooks: bool = True


_ended: Final[dict[tuple[str, RowStyle], Markup]] = {}
"""The rows of ended replays by version: they are most of any list, and look alike from then on."""


def job_rows(
    environment: Environment, replays: Iterable[Replay], present_ms: int, style: RowStyle
) -> list[Markup]:
    """The rows of replays, in their order. For one thread at a time."""
    return [_row(environment, replay, present_ms, style) for replay in replays]


def _row(environment: Environment, replay: Replay, present_ms: int, style: RowStyle) -> Markup:
    version = event_id(replay)
    known = _ended.get((version, style))
    if known is not None:
        return known
    parts = row_parts(environment, replay, present_ms)
    has_ended = replay.state in TERMINAL
    row = _macros(environment).row(replay, version, parts, present_ms, has_ended, style)
    if has_ended:
        if len(_ended) >= ENDED_MAX:
            _ended.clear()
        _ended[version, style] = row
    return row


def row_parts(environment: Environment, replay: Replay, present_ms: int) -> dict[str, str]:
    """The markup of the cells of a row that change while a replay goes on, by their names."""
    pace = progress(replay, present_ms)
    macros = _macros(environment)
    return {
        "state": macros.state(replay, awaited_by(replay)),
        "progress": macros.progress(replay, pace.share),
        "rate": escape(rate(pace.rate_events_s)),
        "eta": escape(duration(pace.eta_s)),
        "failures": macros.failures(replay.counts.failed),
        "heartbeat": heartbeat(environment, replay, present_ms),
        "worker": escape(replay.worker or NOTHING),
    }


def heartbeat(environment: Environment, replay: Replay, present_ms: int) -> Markup:
    """The age of the last sign of life of who works on a replay; in words when its lease is over.

    The page's script shows these words once it is, without another look here.
    """
    if replay.state not in _HELD or replay.heartbeat_ms is None:
        return escape(NOTHING)
    lease_s = cast("float", environment.globals["lease_s"])
    late_from_ms = replay.heartbeat_ms + round(lease_s * 1_000)
    return _macros(environment).heartbeat(replay.heartbeat_ms, present_ms, late_from_ms, lease_s)


def awaited_by(replay: Replay) -> str | None:
    """What a replay that nobody works on waits for, or why it ended early; in words."""
    if replay.state in TERMINAL:
        return replay.error
    if replay.state is not ReplayState.OPEN:
        return None
    if replay.awaits is not None:
        return f"waits for {awaited_in_words(replay.webhook_id, replay.window, replay.awaits)}"
    return "waits for a worker" if replay.waiting_for is None else f"waits: {replay.waiting_for}"


def counter_parts(counts: Mapping[ReplayState, int]) -> dict[str, str]:
    """How many jobs there are in each state, and in all of them, as text."""
    by_state = {str(state): count(counts.get(state, 0)) for state in ReplayState}
    return {ALL: count(sum(counts.values()))} | by_state


def _macros(environment: Environment) -> _Macros:
    return cast("_Macros", environment.get_template(_TEMPLATE).module)
