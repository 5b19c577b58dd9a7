"""What is asked for of many jobs at once, as the forms of its pages hold it. Pure."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from app.api.problems import INVALID_REQUEST, FieldError, Problem
from app.console.forms import Form
from app.console.job_filters import filter_of, query_of
from app.domain.filters import ReplayFilter
from app.domain.states import TERMINAL, ReplayEvent, ReplayState, moves

TICKED_MAX: Final = 500

_ID_CHARACTERS_MAX: Final = 64
_CURSOR_CHARACTERS_MAX: Final = 500
_NAME_CHARACTERS: Final = range(16, 65)
_NUMBER_MAX: Final = 2**53

T = TypeVar("T")


class Action(StrEnum):
    """What may be done to many jobs."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"

    @property
    def states(self) -> frozenset[ReplayState]:
        """The states that it can be done in; a retry takes failures besides."""
        return TERMINAL if self is Action.RETRY else frozenset(moves(ReplayEvent(self)))

    @property
    def operation(self) -> str:
        """The operation of the API that does it to one job."""
        return f"{self}Replay"


@dataclass(frozen=True, slots=True)
class Order:
    """An action on the jobs of `ids`, or without any, on all that `wanted` fits.

    Those count that were asked for before `before_ms`: what comes later was not seen by who asked.
    `once` names the order, so that what it queues is queued once. `expected` is how many jobs were
    told of before anything was done; `done` and `refused` of them are behind it, those of a filter
    up to `cursor`.
    """

    action: Action
    ids: tuple[str, ...] | None
    wanted: ReplayFilter
    before_ms: int
    once: str
    expected: int = 0
    done: int = 0
    refused: int = 0
    cursor: str | None = None

    @property
    def matching(self) -> ReplayFilter:
        """Which jobs `wanted` fits that are not too late."""
        bound_ms = self.before_ms
        if self.wanted.created_to_ms is not None:
            bound_ms = min(bound_ms, self.wanted.created_to_ms)
        return replace(self.wanted, created_to_ms=bound_ms)

    @property
    def fitting(self) -> ReplayFilter | None:
        """Those of `matching` that the action can be done to; None when their states exclude it."""
        states = self.action.states & (self.wanted.states or self.action.states)
        if not states:
            return None
        is_retry = self.action is Action.RETRY
        failures = self.wanted.with_failures or is_retry
        return replace(self.matching, states=states, with_failures=failures)

    @property
    def left(self) -> int:
        """How many jobs are still to be done, as far as is known."""
        return max(0, self.expected - self.done - self.refused)

    def fields(self) -> list[tuple[str, str]]:
        """The fields of a form that `read_order` reads as this."""
        fields = {
            "action": self.action,
            "scope": "all" if self.ids is None else "ticked",
            "filter": query_of(self.wanted),
            "before": self.before_ms,
            "once": self.once,
            "expected": self.expected,
            "done": self.done,
            "refused": self.refused,
            "cursor": self.cursor or "",
        }
        return [(name, str(value)) for name, value in fields.items()] + [
            ("id", replay_id) for replay_id in self.ids or ()
        ]


def read_order(form: Form) -> Order:
    """What a form asks for; a name of the order is made where the form has none.

    Raises:
        Problem: it asks for nothing that can be done.
    """
    is_all = _one_of(form, "scope", {"all": True, "ticked": False})
    once = form["once"]
    if once and len(once) not in _NAME_CHARACTERS:
        raise _refused("once", once, "16 to 64 characters, or none")
    if len(form["cursor"]) > _CURSOR_CHARACTERS_MAX:
        raise _refused("cursor", None, f"at most {_CURSOR_CHARACTERS_MAX} characters")
    return Order(
        _one_of(form, "action", {str(action): action for action in Action}),
        None if is_all else _ids(form),
        filter_of(form["filter"]),
        _number(form, "before"),
        once or secrets.token_urlsafe(16),
        _number(form, "expected"),
        _number(form, "done"),
        _number(form, "refused"),
        form["cursor"] or None,
    )


def _ids(form: Form) -> tuple[str, ...]:
    # In the order of the page, each once.
    ids = tuple(dict.fromkeys(form.all("id")))
    if len(ids) > TICKED_MAX:
        raise _refused("id", f"{len(ids)} jobs", f"at most {TICKED_MAX} jobs")
    too_long = next((each for each in ids if len(each) > _ID_CHARACTERS_MAX), None)
    if too_long is not None:
        raise _refused("id", too_long, f"at most {_ID_CHARACTERS_MAX} characters")
    return ids


def _number(form: Form, name: str) -> int:
    text = form[name]
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_NUMBER_MAX))
    if text and not (is_number and int(text) <= _NUMBER_MAX):
        raise _refused(name, text, f"0 to {_NUMBER_MAX}")
    return int(text or 0)


def _one_of(form: Form, name: str, choices: Mapping[str, T]) -> T:
    if form[name] not in choices:
        raise _refused(name, form[name], ", ".join(choices))
    return choices[form[name]]


def _refused(name: str, value: str | None, allowed: str) -> Problem:
    return Problem.of_fields(INVALID_REQUEST, [FieldError(name, value, allowed)])
