"""Bodies of the routes of rules."""

import math
from typing import Annotated, Final, Self

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

from app.api.models.documents import Document
from app.domain.options import EVENT_TYPES_MAX
from app.domain.rules import CONDITIONS_MAX, Rule, Scalar
from app.http.request_bodies import EventTypeGlob, RequestBody, example

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

RULE_EXAMPLE: Final[dict[str, JsonValue]] = {
    "eventTypes": ["follow.*"],
    "where": {"data.userId": "42"},
}


class RuleRequest(RequestBody):
    """A rule: events of one of these types with all of these values."""

    model_config = example(RULE_EXAMPLE)

    event_types: EventTypes
    where: dict[_Path, _Value] = Field(
        {},
        max_length=CONDITIONS_MAX,
        description="Paths in the event, such as `data.userId`, with the values they must have. "
        'Values are compared as JSON: 42 is not `"42"`.',
    )

    def rule(self, webhook_id: str, name: str) -> Rule:
        """The rule to store."""
        return Rule(webhook_id, name, tuple(self.event_types), tuple(self.where.items()))


class RuleDocument(Document):
    """A rule of a webhook."""

    model_config = example(RULE_EXAMPLE | {"webhookId": "wh_2yPqkM5dTn4v", "name": "default"})

    webhook_id: str
    name: str
    event_types: list[str]
    where: dict[str, Scalar]

    @classmethod
    def of(cls, rule: Rule) -> Self:
        """The document of a rule."""
        return cls(
            webhook_id=rule.webhook_id,
            name=rule.name,
            event_types=list(rule.event_types),
            where=dict(rule.where),
        )
