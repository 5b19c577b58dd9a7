"""Request bodies that select events: those of rules and grants."""

import re
from typing import Annotated, Final

from pydantic import Field, JsonValue

from app.domain.grants import GRANT_NAME, Grant
from app.domain.options import EVENT_TYPES_MAX
from app.domain.rules import Conditions
from app.http.event_patterns import Where, read_where
from app.http.request_bodies import EventTypeGlob, RequestBody, example
from app.services.errors import FieldError, InvalidRequest

EventTypes = Annotated[
    list[EventTypeGlob], Field(min_length=1, max_length=EVENT_TYPES_MAX, description="Globs.")
]

SELECTION_EXAMPLE: Final[dict[str, JsonValue]] = {
    "eventTypes": ["follow.*"],
    "where": {"data.userId": "42"},
}


class EventSelection(RequestBody):
    """Events of one of these types that meet all of these conditions."""

    event_types: EventTypes
    where: Where = Field({})

    @property
    def conditions(self) -> Conditions:
        """The conditions to store, by their full paths."""
        return read_where(self.where)


class GrantRequest(EventSelection):
    """A grant: the account may receive events of these types that meet all conditions."""

    model_config = example(SELECTION_EXAMPLE)

    def grant(self, account_id: str, name: str) -> Grant:
        """The grant to store."""
        return Grant(account_id, name, tuple(self.event_types), self.conditions)


def check_grant_name(name: str) -> None:
    """Return if a grant may have this name.

    Raises:
        InvalidRequest: it has other characters, or too many.
    """
    if not re.fullmatch(GRANT_NAME, name):
        raise InvalidRequest(fields=[FieldError("name", name, f"a text that matches {GRANT_NAME}")])
