"""Request bodies that select events: those of rules and grants."""

import math
import re
from typing import Annotated, Final

from pydantic import (
    BeforeValidator,
    Field,
    FiniteFloat,
    JsonValue,
    Strict,
    StrictBool,
    StrictInt,
    StrictStr,
)

from app.domain.grants import GRANT_NAME, Grant
from app.domain.options import EVENT_TYPES_MAX
from app.domain.rules import CONDITIONS_MAX
from app.http.request_bodies import EventTypeGlob, RequestBody, example
from app.services.errors import FieldError, InvalidRequest

EventTypes = Annotated[
    list[EventTypeGlob], Field(min_length=1, max_length=EVENT_TYPES_MAX, description="Globs.")
]

_Path = Annotated[str, Field(min_length=1, max_length=256)]
_TEXT_CHARACTERS_MAX: Final = 1_000
_Text = Annotated[StrictStr, Field(max_length=_TEXT_CHARACTERS_MAX)]
_Fraction = Annotated[FiniteFloat, Strict()]


def _scalar(value: object) -> object:
    # Pydantic reports an error for each member of a union; one is clearer.
    is_too_long = isinstance(value, str) and len(value) > _TEXT_CHARACTERS_MAX
    is_no_number = isinstance(value, float) and not math.isfinite(value)
    if isinstance(value, dict | list) or is_too_long or is_no_number:
        raise ValueError(
            f"a text of up to {_TEXT_CHARACTERS_MAX} characters, a number, true, false or null"
        )
    return value


_Value = Annotated[_Text | StrictInt | _Fraction | StrictBool | None, BeforeValidator(_scalar)]

SELECTION_EXAMPLE: Final[dict[str, JsonValue]] = {
    "eventTypes": ["follow.*"],
    "where": {"data.userId": "42"},
}


class EventSelection(RequestBody):
    """Events of one of these types with all of these values."""

    event_types: EventTypes
    where: dict[_Path, _Value] = Field(
        {},
        max_length=CONDITIONS_MAX,
        description="Paths in the event, such as `data.userId`, with the values they must have. "
        'Values are compared as JSON: 42 is not `"42"`.',
    )


class GrantRequest(EventSelection):
    """A grant: the account may receive events of one of these types with all of these values."""

    model_config = example(SELECTION_EXAMPLE)

    def grant(self, account_id: str, name: str) -> Grant:
        """The grant to store."""
        return Grant(account_id, name, tuple(self.event_types), tuple(self.where.items()))


def check_grant_name(name: str) -> None:
    """Return if a grant may have this name.

    Raises:
        InvalidRequest: it has other characters, or too many.
    """
    if not re.fullmatch(GRANT_NAME, name):
        raise InvalidRequest(fields=[FieldError("name", name, f"a text that matches {GRANT_NAME}")])
