"""What changes on a job's own page, as markup: for the page, and for what keeps it true."""

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, cast

from jinja2 import Environment
from markupsafe import Markup

from app.console.job_rows import awaited_by, heartbeat
from app.console.plots import pace_plot
from app.domain.model import Replay
from app.domain.moves import Move, MoveEvent
from app.domain.progress import progress
from app.domain.samples import Sample
from app.domain.states import TERMINAL, TRANSITIONS, ReplayEvent

MOVES_SHOWN: Final = 30
"""The latest; whoever wants all of them asks for them, and gets them once."""

_TEMPLATE: Final = "_job_page_parts.html"

_NO_ANSWER: Final = "none"

_HAPPENED: Final[Mapping[MoveEvent, str]] = {
    MoveEvent.CREATE: "Asked for",
    MoveEvent.RESTORE: "Restore",
    MoveEvent.CLAIM: "Claimed",
    MoveEvent.TAKE_OVER: "Taken over",
    MoveEvent.BEGIN: "Delivery began",
    MoveEvent.COMPLETE: "Completed",
    MoveEvent.FAIL: "Failed",
    MoveEvent.RELEASE: "Given back",
    MoveEvent.PAUSE: "Paused",
    MoveEvent.RESUME: "Resumed",
    MoveEvent.CANCEL: "Cancelled",
}

_BY_WORKERS: Final = frozenset(
    (
        *(MoveEvent.CLAIM, MoveEvent.TAKE_OVER, MoveEvent.BEGIN),
        *(MoveEvent.COMPLETE, MoveEvent.FAIL, MoveEvent.RELEASE),
    )
)


class _Macro(Protocol):
    def __call__(self, *arguments: object) -> Markup: ...


@dataclass(frozen=True, slots=True)
class JobView:
    """A replay, with what happened to it and how far it was over time, the oldest first."""

    replay: Replay
    moves: tuple[Move, ...]
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """How many events were answered alike at last: `share` is theirs of all that were sent."""

    words: str
    is_good: bool
    events: int
    share: float


@dataclass(frozen=True, slots=True)
class Happening:
    """A move in words: `by` says who made it, empty where nobody is told."""

    words: str
    by: str
    is_takeover: bool
    move: Move


def job_parts(environment: Environment, view: JobView, present_ms: int) -> dict[str, str]:
    """The markup of all that changes while a replay goes on, by the names of the parts.

    It is the same for everybody who may see the replay: nothing of a viewer is in it.
    """
    replay = view.replay
    pace, plot = progress(replay, present_ms), pace_plot(view.samples)

    def part(name: str, *arguments: object) -> Markup:
        return _macro(environment, name)(*arguments)

    done_ms = None if pace.eta_s is None else present_ms + round(pace.eta_s * 1_000)
    parts = {
        "state": part("state", replay.state),
        "why": part("why", awaited_by(replay)),
        "progress": part("progress", replay, pace, events_left(replay)),
        "facts": part("facts", replay, heartbeat(environment, replay, present_ms), present_ms),
        "eta": part("eta", replay, pace.eta_s, done_ms),
        "plot": part("plot", plot, len(view.samples)),
        "rows": part("rows", plot),
        "statuses": part("statuses", answers(replay.status_counts), replay.counts),
        "timeline": timeline_part(environment, view.moves),
        "failures": part("failures", replay),
        "actions": part("actions", replay, possible(replay)),
    }
    # As a page that holds them reads them back, by which it sees that one has not changed.
    return {name: markup.strip() for name, markup in parts.items()}


def timeline_part(
    environment: Environment, moves: tuple[Move, ...], at_most: int | None = MOVES_SHOWN
) -> Markup:
    """What happened, the latest first; of more than `at_most` those, and how it began."""
    happened = [happening(move) for move in reversed(moves)]
    is_cut = at_most is not None and len(happened) > at_most + 1
    latest = happened[:at_most] if is_cut else happened
    first = happened[-1:] if is_cut else []
    hidden = len(happened) - len(latest) - len(first)
    return _macro(environment, "timeline")(latest, hidden, first)


def _macro(environment: Environment, name: str) -> _Macro:
    return cast("_Macro", getattr(environment.get_template(_TEMPLATE).module, name))


def asked_by(moves: tuple[Move, ...]) -> str:
    """Who asked for a replay with these moves; empty where nobody is told."""
    created = [move for move in moves if move.event is MoveEvent.CREATE]
    return happening(created[0]).by if created else ""


def happening(move: Move) -> Happening:
    """A move in words."""
    if move.actor is None:
        by = ""
    elif move.event in _BY_WORKERS:
        by = f"worker {move.actor}"
    else:
        # The id of a key says that it is one.
        by = move.actor
    is_takeover = move.event is MoveEvent.TAKE_OVER
    return Happening(_HAPPENED[move.event], by, is_takeover, move)


def possible(replay: Replay) -> frozenset[str]:
    """What its owner may do to a replay as it stands: "pause", "resume", "cancel", "retry"."""
    owners = (ReplayEvent.PAUSE, ReplayEvent.RESUME, ReplayEvent.CANCEL)
    found = {event.value for event in owners if event in TRANSITIONS[replay.state]}
    if replay.state in TERMINAL and replay.counts.failed:
        found.add("retry")
    return frozenset(found)


def events_left(replay: Replay) -> int | None:
    """About how many events are still to come, if the rest is like what was read; else None."""
    if replay.offsets is None or replay.checkpoint is None:
        return None
    counts = replay.counts
    done = counts.delivered + counts.duplicates + counts.failed
    passed = replay.checkpoint - replay.offsets.start
    remaining = replay.offsets.end - replay.checkpoint
    if not remaining:
        return 0
    return round(remaining * done / passed) if passed else None


def answers(statuses: Mapping[str, int] | None) -> tuple[Answer, ...] | None:
    """The statuses of a replay in words, the most frequent first; None if they were not noted."""
    if statuses is None:
        return None
    total = sum(statuses.values())
    found = (
        Answer(_status_words(status), status[:1] == "2", events, events / total)
        for status, events in statuses.items()
        if events
    )
    return tuple(sorted(found, key=lambda answer: (-answer.events, answer.words)))


def _status_words(status: str) -> str:
    if status == _NO_ANSWER:
        return "no answer"
    try:
        return f"{status} {HTTPStatus(int(status)).phrase}"
    except ValueError:
        return status
