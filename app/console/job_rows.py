"""Rows of job lists, and the counters of jobs by state, for pages and for live updates."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, cast

from jinja2 import Environment
from markupsafe import Markup, escape

from app.console.formats import NOTHING, count, duration, rate
from app.domain.model import Replay
from app.domain.progress import progress
from app.domain.receiver_failure import ReceiverFailure
from app.domain.replay_results import state_label
from app.domain.restores import describe_awaited
from app.domain.states import TERMINAL, ReplayState
from app.domain.windows import format_time
from app.services.progress_watch import version_of

ALL: Final = "all"
"""The counter of jobs in all states."""

ENDED_ROWS_MAX: Final = 2_000
"""Cached rows of ended replays, of one to three kilobytes each with the key."""

_TEMPLATE: Final = "_job_parts.html"

_CLAIMED: Final = frozenset((ReplayState.STARTED, ReplayState.ONGOING))


class _Macros(Protocol):
    """The template's macros for a row and its cells."""

    def row(
        self,
        replay: Replay,
        version: str,
        parts: Mapping[str, str],
        present_ms: int,
        has_ended: bool,
        style: "RowStyle",
        webhook_name: str | None,
    ) -> Markup: ...

    def state(self, replay: Replay, label: str, words: str | None) -> Markup: ...

    def progress(self, replay: Replay, share: float) -> Markup: ...

    def failures(self, number: int) -> Markup: ...

    def heartbeat(
        self, at_ms: int, present_ms: int, late_from_ms: int, lease_s: float
    ) -> Markup: ...


@dataclass(frozen=True, slots=True)
class RowStyle:
    """The optional parts of rows: checkbox, account and webhook."""

    boxes: bool
    accounts: bool
    webhooks: bool = True


_ended_rows: Final[dict[tuple[str, RowStyle, str | None], Markup]] = {}
"""Rows of ended replays by version, style and name of the webhook, which are all they show.

Most rows of a list are of ended replays, which never change.
"""


def job_rows(
    environment: Environment,
    replays: Iterable[Replay],
    present_ms: int,
    style: RowStyle,
    webhook_names: Mapping[str, str],
) -> list[Markup]:
    """Return the rows of replays, in their order. Not thread-safe.

    A webhook without a name is shown as deleted.
    """
    return [
        _row(environment, each, present_ms, style, webhook_names.get(each.webhook_id))
        for each in replays
    ]


def _row(
    environment: Environment,
    replay: Replay,
    present_ms: int,
    style: RowStyle,
    webhook_name: str | None,
) -> Markup:
    version = version_of(replay)
    cached = _ended_rows.get((version, style, webhook_name))
    if cached is not None:
        return cached
    parts = row_parts(environment, replay, present_ms)
    has_ended = replay.state in TERMINAL
    row = _macros(environment).row(
        replay, version, parts, present_ms, has_ended, style, webhook_name
    )
    if has_ended:
        if len(_ended_rows) >= ENDED_ROWS_MAX:
            _ended_rows.clear()
        _ended_rows[version, style, webhook_name] = row
    return row


def row_parts(environment: Environment, replay: Replay, present_ms: int) -> dict[str, str]:
    """Return the markup of the cells that change while a replay runs, by name."""
    current = progress(replay, present_ms)
    macros = _macros(environment)
    return {
        "state": macros.state(replay, state_label(replay), waiting_reason(replay)),
        "progress": macros.progress(replay, current.share),
        "rate": escape(rate(current.rate_events_s)),
        "eta": escape(duration(current.eta_s)),
        "failures": macros.failures(replay.counts.failed),
        "heartbeat": heartbeat(environment, replay, present_ms),
        "worker": escape(replay.worker or NOTHING),
    }


def heartbeat(environment: Environment, replay: Replay, present_ms: int) -> Markup:
    """Return the age of the last heartbeat, with a warning once the lease has expired.

    The page's script shows the warning at that time, without an update from the server.
    """
    if replay.state not in _CLAIMED or replay.heartbeat_ms is None:
        return escape(NOTHING)
    lease_s = cast("float", environment.globals["lease_s"])
    late_from_ms = replay.heartbeat_ms + round(lease_s * 1_000)
    return _macros(environment).heartbeat(replay.heartbeat_ms, present_ms, late_from_ms, lease_s)


def waiting_reason(replay: Replay) -> str | None:
    """Return what a replay waits for, or the error of an ended one."""
    if replay.state in TERMINAL:
        return replay.error
    if replay.receiver_failure is not None:
        return describe_receiver_failure(replay.receiver_failure)
    if replay.state is not ReplayState.OPEN:
        return None
    if replay.awaits is not None:
        return f"waits for {describe_awaited(replay.webhook_id, replay.window, replay.awaits)}"
    return "waits for a worker" if replay.waiting_for is None else f"waits: {replay.waiting_for}"


def describe_receiver_failure(failure: ReceiverFailure) -> str:
    """Return the last error of a receiver that fails, and when the next attempt is due."""
    return (
        f"The receiver fails: {failure.reason} ({count(failure.failed_attempts)} failed attempts). "
        f"Next attempt at {format_time(failure.next_attempt_ms)[11:19]} UTC; "
        f"{count(failure.waiting_events)} events wait."
    )


def counter_parts(counts: Mapping[ReplayState, int]) -> dict[str, str]:
    """Return the formatted numbers of jobs in each state and in all."""
    by_state = {str(state): count(counts.get(state, 0)) for state in ReplayState}
    return {ALL: count(sum(counts.values()))} | by_state


def _macros(environment: Environment) -> _Macros:
    return cast("_Macros", environment.get_template(_TEMPLATE).module)
