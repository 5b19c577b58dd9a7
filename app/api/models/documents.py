"""What all response bodies share: camelCase names, times, and pages of lists."""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from starlette.responses import Response

from app.domain.windows import format_time
from app.http.request_bodies import example

Item = TypeVar("Item", bound=BaseModel)


Moment = Annotated[
    int,
    PlainSerializer(format_time, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""A time in a response, in milliseconds; RFC 3339 UTC in JSON."""


def former_name_of(member: str) -> Any:
    """The field of a member that was renamed, and has the value of the new one."""
    text = f"The former name of `{member}`."
    return Field(description=text, json_schema_extra={"deprecated": True})


class Document(BaseModel):
    """A response body; `model_validate` fills it from the attributes of an object."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        from_attributes=True,
        frozen=True,
        json_schema_serialization_defaults_required=True,
    )


def respond(document: Document, status: int = 200) -> Response:
    """The response with a document, for routes that return responses."""
    return Response(document.model_dump_json(by_alias=True), status, media_type="application/json")


class Listing(Document, Generic[Item]):
    """A page of a list."""

    items: list[Item]
    next_cursor: str | None = Field(description="The `cursor` of the next page; null at the end.")


class Acceptance(Document):
    """The number of published events, acknowledged by all in-sync replicas."""

    model_config = example({"accepted": 2})

    accepted: int


class HealthDocument(Document):
    """The process is healthy, or ready."""

    model_config = example({"status": "ok"})

    status: Literal["ok"] = "ok"
