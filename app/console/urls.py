"""URLs of pages, and the filter of jobs in their query strings. Pure."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qs, quote, urlencode

from app.console.formats import parse_field_time
from app.domain.model import ReplayFilter
from app.domain.options import ReplayReason
from app.domain.states import ReplayState
from app.domain.windows import TIME_ALLOWED, format_time
from app.http.problems import INVALID_REQUEST, Problem
from app.services.errors import FieldError

PREFIX: Final = "/console"
"""What the path of each page begins with."""

JOBS: Final = f"{PREFIX}/jobs"
NEW_REPLAY: Final = f"{PREFIX}/replays/new"
WEBHOOKS: Final = f"{PREFIX}/webhooks"
NOTICE_ENDPOINTS: Final = f"{PREFIX}/notice-endpoints"
DELIVERIES: Final = f"{PREFIX}/deliveries"
FAILURES: Final = f"{DELIVERIES}/failures"
OVERVIEW: Final = f"{PREFIX}/overview"
EVENTS: Final = f"{PREFIX}/events"

TEXT_FIELDS: Final = ("webhookId", "accountId", "createdFrom", "createdTo")
"""The text inputs of the filter form."""

_CHARACTERS_MAX: Final = {"webhookId": 256, "accountId": 40}
_FIELDS_MAX: Final = 50
_YES: Final = "true"

T = TypeVar("T")


def page_url(page: str, fields: Mapping[str, str | None]) -> str:
    """Return the URL of a page with a query of these fields. Empty fields are left out."""
    query = urlencode({name: text for name, text in fields.items() if text})
    return f"{page}?{query}" if query else page


def deliveries_url(webhook_id: str, fields: Mapping[str, str | None]) -> str:
    """Return the URL of the deliveries of a webhook with a query of these fields."""
    return page_url(f"{WEBHOOKS}/{webhook_id}/deliveries", fields)


def event_url(event_id: str) -> str:
    """Return the URL of an event."""
    return f"{EVENTS}/{quote(event_id, safe='')}"


def jobs_url(wanted: ReplayFilter, **more: str | int | None) -> str:
    """Return the URL of the job list with a filter and further query fields."""
    query = filter_query(wanted, **more)
    return f"{JOBS}?{query}" if query else JOBS


def filter_query(wanted: ReplayFilter, **more: str | int | None) -> str:
    """Return the query string that `parse_filter` parses as `wanted`, with further fields.

    Equal filters have equal queries. Fields that are None are left out.
    """
    states = [("state", str(state)) for state in ReplayState if state in wanted.states]
    others = {
        "webhookId": wanted.webhook_id,
        "accountId": wanted.account_id,
        "createdFrom": _format_time(wanted.created_from_ms),
        "createdTo": _format_time(wanted.created_to_ms),
        "withFailures": _YES if wanted.with_failures else None,
        "reason": wanted.reason,
        **more,
    }
    return urlencode(
        states + [(name, str(value)) for name, value in others.items() if value is not None]
    )


def _format_time(time_ms: int | None) -> str | None:
    return None if time_ms is None else format_time(time_ms)


def parse_filter(query: str) -> ReplayFilter:
    """Return the filter of a query string such as `state=OPEN&webhookId=wh_1`.

    Fields have the API's names. `state` may be repeated. Empty and other fields are ignored.

    Raises:
        Problem: unknown state or reason, invalid time, or a value that is too long.
    """
    parser = _FilterParser(query)
    found = ReplayFilter(
        parser.parse_states(),
        parser.parse_text("webhookId"),
        parser.parse_text("accountId"),
        parser.parse_time("createdFrom"),
        parser.parse_time("createdTo"),
        parser.parse_flag("withFailures"),
        parser.parse_reason(),
    )
    if parser.errors:
        raise Problem.of_fields(INVALID_REQUEST, parser.errors)
    return found


class _FilterParser:
    """Parses the fields of a query string and collects their errors."""

    def __init__(self, query: str) -> None:
        self.errors: list[FieldError] = []
        try:
            self._fields = parse_qs(query, max_num_fields=_FIELDS_MAX)
        except ValueError:
            self._fields = {}
            self.errors.append(FieldError("query", None, f"at most {_FIELDS_MAX} fields"))

    def parse_states(self) -> frozenset[ReplayState]:
        """Return the values of `state`."""
        allowed = ", ".join(ReplayState)
        values = self._fields.get("state", [])
        found = (self._parse("state", value, ReplayState, allowed) for value in values)
        return frozenset(state for state in found if state is not None)

    def parse_text(self, name: str) -> str | None:
        """Return a text of limited length."""
        value = self._last(name)
        if len(value) > _CHARACTERS_MAX[name]:
            self._add_error(name, value, f"at most {_CHARACTERS_MAX[name]} characters")
        return value or None

    def parse_time(self, name: str) -> int | None:
        """Return a time in milliseconds since 1970."""
        value = self._last(name)
        return self._parse(name, value, parse_field_time, TIME_ALLOWED) if value else None

    def parse_flag(self, name: str) -> bool:
        """Return whether a checkbox is selected."""
        value = self._last(name)
        if value not in ("", _YES):
            self._add_error(name, value, _YES)
        return value == _YES

    def parse_reason(self) -> ReplayReason | None:
        """Return the reason of the replays."""
        value = self._last("reason")
        allowed = ", ".join(ReplayReason)
        return self._parse("reason", value, ReplayReason, allowed) if value else None

    def _parse(self, name: str, value: str, parse: Callable[[str], T], allowed: str) -> T | None:
        try:
            return parse(value)
        except ValueError:
            self._add_error(name, value, allowed)
            return None

    def _last(self, name: str) -> str:
        return self._fields.get(name, [""])[-1].strip()

    def _add_error(self, name: str, value: str, allowed: str) -> None:
        self.errors.append(FieldError(name, value, allowed))
