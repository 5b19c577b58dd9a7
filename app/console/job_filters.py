"""Which jobs a page shows, as the query of its address. Pure."""

from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlencode

from app.api.problems import INVALID_REQUEST, FieldError, Problem
from app.console.form_times import read_time
from app.domain.filters import ReplayFilter
from app.domain.states import ReplayState
from app.domain.windows import TIME_ALLOWED, format_time

JOBS: Final = "/console/jobs"

TEXTS: Final = ("webhookId", "accountId", "createdFrom", "createdTo")
"""The fields of a filter in which anything may be typed."""

_CHARACTERS_MAX: Final = {"webhookId": 256, "accountId": 40}
_FIELDS_MAX: Final = 50
_YES: Final = "true"

T = TypeVar("T")


def filter_of(query: str) -> ReplayFilter:
    """The filter that a query such as `state=OPEN&webhookId=wh_1` names; it may name other things.

    Fields are named as the API names them; several states may be, and what is empty filters
    nothing.

    Raises:
        Problem: no state has such a name, a value is too long, or no time.
    """
    reader = _Reader(query)
    found = ReplayFilter(
        reader.states(),
        reader.text("webhookId"),
        reader.text("accountId"),
        reader.time("createdFrom"),
        reader.time("createdTo"),
        reader.is_set("withFailures"),
    )
    if reader.refused:
        raise Problem.of_fields(INVALID_REQUEST, reader.refused)
    return found


class _Reader:
    """Reads the fields of a query; `refused` gathers what is wrong with them."""

    def __init__(self, query: str) -> None:
        self.refused: list[FieldError] = []
        try:
            self._fields = parse_qs(query, max_num_fields=_FIELDS_MAX)
        except ValueError:
            self._fields = {}
            self.refused.append(FieldError("query", None, f"at most {_FIELDS_MAX} fields"))

    def states(self) -> frozenset[ReplayState]:
        """The states that are named."""
        allowed = ", ".join(ReplayState)
        found = (self._read("state", name, ReplayState, allowed) for name in self._all("state"))
        return frozenset(state for state in found if state is not None)

    def text(self, name: str) -> str | None:
        """A text, of a bounded length."""
        value = self._last(name)
        if len(value) > _CHARACTERS_MAX[name]:
            self._refuse(name, value, f"at most {_CHARACTERS_MAX[name]} characters")
        return value or None

    def time(self, name: str) -> int | None:
        """A moment."""
        value = self._last(name)
        return self._read(name, value, read_time, TIME_ALLOWED) if value else None

    def is_set(self, name: str) -> bool:
        """Whether a box is ticked."""
        value = self._last(name)
        if value not in ("", _YES):
            self._refuse(name, value, _YES)
        return value == _YES

    def _read(self, name: str, value: str, read: Callable[[str], T], allowed: str) -> T | None:
        try:
            return read(value)
        except ValueError:
            self._refuse(name, value, allowed)
            return None

    def _all(self, name: str) -> list[str]:
        return self._fields.get(name, [])

    def _last(self, name: str) -> str:
        return self._fields.get(name, [""])[-1].strip()

    def _refuse(self, name: str, value: str, allowed: str) -> None:
        self.refused.append(FieldError(name, value, allowed))


def query_of(wanted: ReplayFilter, **more: str | int | None) -> str:
    """The query that `filter_of` reads as `wanted`, with fields that have another meaning.

    Of equal filters the queries are equal. What is None is left out.
    """
    states = [("state", str(state)) for state in ReplayState if state in wanted.states]
    others = {
        "webhookId": wanted.webhook_id,
        "accountId": wanted.account_id,
        "createdFrom": _time(wanted.created_from_ms),
        "createdTo": _time(wanted.created_to_ms),
        "withFailures": _YES if wanted.with_failures else None,
        **more,
    }
    return urlencode(
        states + [(name, str(value)) for name, value in others.items() if value is not None]
    )


def _time(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)


def jobs_url(wanted: ReplayFilter, **more: str | int | None) -> str:
    """Where the list of the jobs of a filter is, with what else its address is to say."""
    query = query_of(wanted, **more)
    return f"{JOBS}?{query}" if query else JOBS
