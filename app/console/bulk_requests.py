"""Bulk actions on jobs, as their forms encode them. Pure."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeVar

from app.console.forms import Form
from app.console.urls import filter_query, parse_filter
from app.domain.model import ReplayFilter
from app.domain.states import ACTIVE, TERMINAL, ReplayEvent, ReplayState, moves
from app.http.problems import INVALID_REQUEST, Problem
from app.services.errors import FieldError

SELECTED_MAX: Final = 500

_ID_CHARACTERS_MAX: Final = 64
_CURSOR_CHARACTERS_MAX: Final = 500
_KEY_CHARACTERS: Final = range(16, 65)
_NUMBER_MAX: Final = 2**53

T = TypeVar("T")


class BulkAction(StrEnum):
    """An action on jobs."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    RETRY = "retry"

    @property
    def states(self) -> frozenset[ReplayState]:
        """The states that allow the action. A retry also requires failures."""
        if self is BulkAction.RETRY:
            return TERMINAL
        # A FAILED replay is resumed on its own page.
        return frozenset(moves(ReplayEvent(self))) & ACTIVE

    @property
    def operation(self) -> str:
        """The API's operation for one job."""
        return f"{self}Replay"


@dataclass(frozen=True, slots=True)
class BulkRequest:
    """An action on the jobs in `ids`, or, if that is None, on all that match `wanted`.

    It excludes jobs created at or after `before_ms`, which the viewer has not seen. `once` is the
    idempotency key. `expected` is the number of jobs in the confirmation; `done` and `rejected` of
    them are finished. With a filter, `cursor` is the position in the list.
    """

    action: BulkAction
    ids: tuple[str, ...] | None
    wanted: ReplayFilter
    before_ms: int
    once: str
    expected: int = 0
    done: int = 0
    rejected: int = 0
    cursor: str | None = None

    @property
    def matching(self) -> ReplayFilter:
        """`wanted` without jobs created at or after `before_ms`."""
        bound_ms = self.before_ms
        if self.wanted.created_to_ms is not None:
            bound_ms = min(bound_ms, self.wanted.created_to_ms)
        return replace(self.wanted, created_to_ms=bound_ms)

    @property
    def eligible(self) -> ReplayFilter | None:
        """`matching` with the states that allow the action; None if the filter excludes them."""
        states = self.action.states & (self.wanted.states or self.action.states)
        if not states:
            return None
        is_retry = self.action is BulkAction.RETRY
        failures = self.wanted.with_failures or is_retry
        return replace(self.matching, states=states, with_failures=failures)

    @property
    def remaining(self) -> int:
        """The estimated number of jobs that are left."""
        return max(0, self.expected - self.done - self.rejected)

    def form_fields(self) -> list[tuple[str, str]]:
        """Return the form fields that `parse_bulk_request` parses as this request."""
        fields = {
            "action": self.action,
            "scope": "all" if self.ids is None else "selected",
            "filter": filter_query(self.wanted),
            "before": self.before_ms,
            "once": self.once,
            "expected": self.expected,
            "done": self.done,
            "refused": self.rejected,
            "cursor": self.cursor or "",
        }
        return [(name, str(value)) for name, value in fields.items()] + [
            ("id", replay_id) for replay_id in self.ids or ()
        ]


def parse_bulk_request(form: Form) -> BulkRequest:
    """Return the bulk request of a form, with a new idempotency key if the form has none.

    Raises:
        Problem: a field is invalid.
    """
    is_all = _parse_choice(form, "scope", {"all": True, "selected": False})
    once = form["once"]
    if once and len(once) not in _KEY_CHARACTERS:
        raise _invalid("once", once, "16 to 64 characters, or empty")
    if len(form["cursor"]) > _CURSOR_CHARACTERS_MAX:
        raise _invalid("cursor", None, f"at most {_CURSOR_CHARACTERS_MAX} characters")
    return BulkRequest(
        _parse_choice(form, "action", {str(action): action for action in BulkAction}),
        None if is_all else _parse_ids(form),
        parse_filter(form["filter"]),
        _parse_number(form, "before"),
        once or secrets.token_urlsafe(16),
        _parse_number(form, "expected"),
        _parse_number(form, "done"),
        _parse_number(form, "refused"),
        form["cursor"] or None,
    )


def _parse_ids(form: Form) -> tuple[str, ...]:
    # In the order of the page, without duplicates.
    ids = tuple(dict.fromkeys(form.all("id")))
    if len(ids) > SELECTED_MAX:
        raise _invalid("id", f"{len(ids)} jobs", f"at most {SELECTED_MAX} jobs")
    too_long = next((each for each in ids if len(each) > _ID_CHARACTERS_MAX), None)
    if too_long is not None:
        raise _invalid("id", too_long, f"at most {_ID_CHARACTERS_MAX} characters")
    return ids


def _parse_number(form: Form, name: str) -> int:
    text = form[name]
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(_NUMBER_MAX))
    if text and not (is_number and int(text) <= _NUMBER_MAX):
        raise _invalid(name, text, f"0 to {_NUMBER_MAX}")
    return int(text or 0)


def _parse_choice(form: Form, name: str, choices: Mapping[str, T]) -> T:
    if form[name] not in choices:
        raise _invalid(name, form[name], ", ".join(choices))
    return choices[form[name]]


def _invalid(name: str, value: str | None, allowed: str) -> Problem:
    return Problem.of_fields(INVALID_REQUEST, [FieldError(name, value, allowed)])
