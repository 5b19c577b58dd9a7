"""Which jobs a page shows, as the query of its address. Pure."""

from typing import Final
from urllib.parse import parse_qs, urlencode

from app.api.problems import INVALID_REQUEST, FieldError, Problem
from app.replay.filters import ReplayFilter
from app.replay.states import ReplayState

JOBS: Final = "/console/jobs"

_CHARACTERS_MAX: Final = {"webhookId": 256, "accountId": 40}
_FIELDS_MAX: Final = 50


def filter_of(query: str) -> ReplayFilter:
    """The filter that a query such as `state=OPEN&webhookId=wh_1` names; it may name other things.

    Fields are the API's; several states may be named, and what is empty filters nothing.

    Raises:
        Problem: no state has such a name, or a value is too long.
    """
    try:
        fields = parse_qs(query, max_num_fields=_FIELDS_MAX)
    except ValueError:
        refused = FieldError("query", None, f"at most {_FIELDS_MAX} fields")
        raise Problem.of_fields(INVALID_REQUEST, [refused]) from None
    return ReplayFilter(
        frozenset(_state(name) for name in fields.get("state", [])),
        _text(fields, "webhookId"),
        _text(fields, "accountId"),
    )


def _state(name: str) -> ReplayState:
    try:
        return ReplayState(name)
    except ValueError:
        refused = FieldError("state", name, ", ".join(ReplayState))
        raise Problem.of_fields(INVALID_REQUEST, [refused]) from None


def _text(fields: dict[str, list[str]], name: str) -> str | None:
    value = fields.get(name, [""])[-1].strip()
    if len(value) > _CHARACTERS_MAX[name]:
        refused = FieldError(name, value, f"at most {_CHARACTERS_MAX[name]} characters")
        raise Problem.of_fields(INVALID_REQUEST, [refused])
    return value or None


def query_of(wanted: ReplayFilter, **more: str | int | None) -> str:
    """The query that `filter_of` reads as `wanted`, with fields that have another meaning.

    Of equal filters the queries are equal. What is None is left out.
    """
    states = [("state", str(state)) for state in ReplayState if state in wanted.states]
    others = {"webhookId": wanted.webhook_id, "accountId": wanted.account_id} | more
    named = [(name, str(value)) for name, value in others.items() if value is not None]
    return urlencode(states + named)


def jobs_url(wanted: ReplayFilter, **more: str | int | None) -> str:
    """Where the list of the jobs of a filter is, with what else its address is to say."""
    query = query_of(wanted, **more)
    return f"{JOBS}?{query}" if query else JOBS
