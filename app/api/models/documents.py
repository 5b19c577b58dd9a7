"""What all bodies share: their spelling, their times, and lists by page."""

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel

from app.domain.windows import TIME_ALLOWED, TimeUnreadable, format_time, parse_time

Item = TypeVar("Item", bound=BaseModel)


def _read_time(value: object) -> int:
    if not isinstance(value, str):
        raise TimeUnreadable(repr(value))
    return parse_time(value)


Time = Annotated[
    int,
    BeforeValidator(_read_time),
    WithJsonSchema({"type": "string", "description": TIME_ALLOWED}),
]
"""A moment in a request: milliseconds inside, text outside."""

Moment = Annotated[
    int,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A moment in an answer: milliseconds inside, RFC 3339 UTC outside."""

EventTypeGlob = Annotated[str, Field(pattern=r"^[!-~]{1,256}$")]
"""Which types of events are meant: `*` stands for any characters, `?` for one."""


def example(value: dict[str, JsonValue]) -> ConfigDict:
    """The configuration of a body that is shown so in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [value]})


class RequestBody(BaseModel):
    """A body that came in: a member of another name is a mistake, and said to be one."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", frozen=True)


class Document(BaseModel):
    """A body that goes out."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        json_schema_serialization_defaults_required=True,
    )


class Listing(Document, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    next_cursor: str | None = Field(description="Ask for the next page with it; null at the end.")


class Acceptance(Document):
    """How many events are in the log, acknowledged by every replica that must have them."""

    model_config = example({"accepted": 2})

    accepted: int


class Health(Document):
    """All is well."""

    model_config = example({"status": "ok"})

    status: Literal["ok"] = "ok"
