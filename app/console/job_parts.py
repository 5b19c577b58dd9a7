"""The parts of a job's page that change while it runs, as markup, for pages and live updates."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from jinja2 import Environment
from markupsafe import Markup

from app.console.job_rows import heartbeat, waiting_reason
from app.console.plots import rate_plot
from app.console.rendering import template_macro
from app.domain.model import Replay, unread_offsets
from app.domain.moves import Move, MoveEvent
from app.domain.progress import progress
from app.domain.replay_results import state_label
from app.domain.samples import Sample
from app.domain.states import TERMINAL, TRANSITIONS, ReplayEvent

MOVES_SHOWN: Final = 30
"""The latest entries of the timeline. A page with all of them has no live updates."""

_TEMPLATE: Final = "_job_page_parts.html"

_NO_RESPONSE: Final = "none"

_EVENT_WORDS: Final[Mapping[MoveEvent, str]] = {
    MoveEvent.CREATE: "Created",
    MoveEvent.RESTORE: "Restore",
    MoveEvent.CLAIM: "Claimed",
    MoveEvent.TAKE_OVER: "Taken over",
    MoveEvent.BEGIN: "Delivery started",
    MoveEvent.COMPLETE: "Completed",
    MoveEvent.FAIL: "Failed",
    MoveEvent.RELEASE: "Released",
    MoveEvent.PAUSE: "Paused",
    MoveEvent.RESUME: "Resumed",
    MoveEvent.CANCEL: "Cancelled",
}

_WORKER_EVENTS: Final = frozenset(
    (
        *(MoveEvent.CLAIM, MoveEvent.TAKE_OVER, MoveEvent.BEGIN),
        *(MoveEvent.COMPLETE, MoveEvent.FAIL, MoveEvent.RELEASE),
    )
)


@dataclass(frozen=True, slots=True)
class JobView:
    """A replay with its transitions and samples, oldest first."""

    replay: Replay
    moves: tuple[Move, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class ResponseCount:
    """The events whose last response had one status, and their share of all events sent."""

    words: str
    is_success: bool
    events: int
    share: float


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A transition in words. `by` is the worker or key that caused it, or empty if unknown."""

    words: str
    by: str
    is_takeover: bool
    move: Move


def job_parts(environment: Environment, view: JobView, present_ms: int) -> dict[str, str]:
    """Return the markup of the parts by name.

    It is the same for every viewer who may see the replay.
    """
    replay = view.replay
    current, plot = progress(replay, present_ms), rate_plot(view.samples)

    def part(name: str, *arguments: object) -> Markup:
        return template_macro(environment, _TEMPLATE, name)(*arguments)

    eta_ms = None if current.eta_s is None else present_ms + round(current.eta_s * 1_000)
    parts = {
        "state": part("state", replay.state, state_label(replay)),
        "why": part("why", waiting_reason(replay)),
        "progress": part("progress", replay, current, estimated_events_left(replay)),
        "facts": part("facts", replay, heartbeat(environment, replay, present_ms)),
        "diagnostics": part("diagnostics", replay),
        "eta": part("eta", replay, current.eta_s, eta_ms),
        "plot": part("plot", plot, len(view.samples)),
        "rows": part("rows", plot),
        "statuses": part(
            "statuses",
            response_counts(replay.status_counts),
            replay.counts,
            replay.receiver_failure,
        ),
        "timeline": timeline_part(environment, view.moves),
        "failures": part("failures", replay),
        "actions": part(
            "actions", replay, allowed_actions(replay), unread_offsets(replay) is not None
        ),
    }
    # The script compares a part with the stripped innerHTML of the page.
    return {name: markup.strip() for name, markup in parts.items()}


def timeline_part(
    environment: Environment, moves: tuple[Move, ...], at_most: int | None = MOVES_SHOWN
) -> Markup:
    """Return the timeline, latest first. Of more than `at_most` entries, it keeps the first."""
    entries = [timeline_entry(move) for move in reversed(moves)]
    is_abridged = at_most is not None and len(entries) > at_most + 1
    latest = entries[:at_most] if is_abridged else entries
    first = entries[-1:] if is_abridged else []
    hidden = len(entries) - len(latest) - len(first)
    return template_macro(environment, _TEMPLATE, "timeline")(latest, hidden, first)


def created_by(moves: tuple[Move, ...]) -> str:
    """Return who created the replay with these transitions, or empty if unknown."""
    created = [move for move in moves if move.event is MoveEvent.CREATE]
    return timeline_entry(created[0]).by if created else ""


def timeline_entry(move: Move) -> TimelineEntry:
    """Return a transition in words."""
    if move.actor is None:
        by = ""
    elif move.event in _WORKER_EVENTS:
        by = f"worker {move.actor}"
    else:
        # The prefix of a key's id identifies it as a key.
        by = move.actor
    is_takeover = move.event is MoveEvent.TAKE_OVER
    return TimelineEntry(_EVENT_WORDS[move.event], by, is_takeover, move)


def allowed_actions(replay: Replay) -> frozenset[str]:
    """Return the actions that the state allows: "pause", "resume", "cancel", "retry"."""
    events = (ReplayEvent.PAUSE, ReplayEvent.RESUME, ReplayEvent.CANCEL)
    found = {event.value for event in events if event in TRANSITIONS[replay.state]}
    if replay.state in TERMINAL and (replay.counts.failed or unread_offsets(replay)):
        found.add("retry")
    return frozenset(found)


def estimated_events_left(replay: Replay) -> int | None:
    """Extrapolate the number of events left from the records read. None before the first."""
    if replay.offsets is None or replay.checkpoint is None:
        return None
    counts = replay.counts
    processed = counts.delivered + counts.duplicates + counts.failed
    read = replay.checkpoint - replay.offsets.start
    unread = replay.offsets.end - replay.checkpoint
    if not unread:
        return 0
    return round(unread * processed / read) if read else None


def response_counts(statuses: Mapping[str, int] | None) -> tuple[ResponseCount, ...] | None:
    """Return the statuses in words, most frequent first. None if they were not recorded."""
    if statuses is None:
        return None
    total = sum(statuses.values())
    found = (
        ResponseCount(_status_words(status), status[:1] == "2", events, events / total)
        for status, events in statuses.items()
        if events
    )
    return tuple(sorted(found, key=lambda each: (-each.events, each.words)))


def _status_words(status: str) -> str:
    if status == _NO_RESPONSE:
        return "no response"
    try:
        return f"{status} {HTTPStatus(int(status)).phrase}"
    except ValueError:
        return status
