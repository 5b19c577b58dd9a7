"""The OpenAPI document."""

from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from app.api.admission import OPEN_PATHS
from app.api.event_bodies import EVENT_EXAMPLE, IncomingEvent
from app.api.notice_events import describe_notices
from app.http.problems import MEDIA_TYPE, RATE_LIMITED, UNAUTHORIZED, Kind

TITLE: Final = "Rewind"
VERSION: Final = version("rewind")
DESCRIPTION: Final = """\
The events of a webhook are kept in a log. When its receiver was down, `POST /replays` sends the
events of a window to it again.

Times in requests are RFC 3339 with any offset, or `yyyymmddhhmm` in UTC; times in responses are
RFC 3339 in UTC. Errors are problem documents (RFC 9457).

Requests need an API key: `Authorization: Bearer rwk_...`. A developer's key gives access to the
webhooks and replays of its account; those of other accounts are not found. An operator's key gives
access to all. Responses have the number of requests left for the key (`RateLimit-Remaining`), and
the seconds until the count restarts (`RateLimit-Reset`).
"""
TAGS: Final = [
    {
        "name": "webhooks",
        "description": "Registration and settings of webhooks, and statistics of their receivers.",
    },
    {"name": "deliveries", "description": "Events of a webhook, their status and attempts."},
    {"name": "accounts", "description": "Grants: which events an account may receive."},
    {"name": "replays", "description": "Jobs that send the events of a window again."},
    {"name": "notices", "description": "Signed messages about webhooks and replays, for owners."},
    {"name": "events", "description": "Publishing of events, and look-ups by id."},
    {"name": "log", "description": "Topics, messages and consumer groups, for operators."},
    {"name": "operations", "description": "Health, metrics, processes and jobs, for operators."},
]

_SCHEME: Final = "apiKey"
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key from `rewind keys create`, which shows it once.",
}
_SCHEMAS: Final = "#/components/schemas/"


class FieldErrorDocument(BaseModel):
    """A wrong field."""

    field: str
    value: Any
    allowed: str


class ProblemDocument(BaseModel):
    """An error (RFC 9457). `field`, `value` and `allowed` are those of the first wrong field."""

    model_config = ConfigDict(title="Problem", extra="allow")

    type: str = Field(examples=["urn:rewind:problem:window-refused"])
    title: str
    status: int
    detail: str
    field: str | None = None
    value: Any = None
    allowed: str | None = None
    errors: list[FieldErrorDocument] | None = Field(
        None, description="If several fields are wrong."
    )
    replayId: str | None = Field(  # noqa: N815  # the name it has in JSON
        None, description="The active replay of the webhook."
    )
    unavailable: list[str] | None = Field(None, examples=[["log"]])


ANY_ERROR: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "Any other error.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS + "Problem"}}},
    }
}


def errors(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for these kinds of problems."""
    statuses = sorted({kind.status for kind in kinds})
    return {
        status: _response([kind for kind in kinds if kind.status == status]) for status in statuses
    }


def _response(kinds: list[Kind]) -> dict[str, Any]:
    examples = {
        kind.slug: {
            "value": {
                "type": f"urn:rewind:problem:{kind.slug}",
                "title": kind.title,
                "status": kind.status,
                "detail": kind.title,
            }
        }
        for kind in kinds
    }
    content = {"schema": {"$ref": _SCHEMAS + "Problem"}, "examples": examples}
    description = "; ".join(kind.title for kind in kinds) + "."
    return {"description": description, "content": {MEDIA_TYPE: content}}


EVENTS_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "oneOf": [
                        {"$ref": _SCHEMAS + "Event"},
                        {"type": "array", "items": {"$ref": _SCHEMAS + "Event"}},
                    ]
                },
                "examples": {
                    "one": {"value": EVENT_EXAMPLE},
                    "many": {"value": [EVENT_EXAMPLE, EVENT_EXAMPLE | {"id": "evt_31f7"}]},
                },
            },
            "application/x-ndjson": {
                "schema": {"type": "string", "description": "One event per line."}
            },
        },
    }
}
"""The body of `POST /events`, which the route parses itself."""


def _describe_access(operation: dict[str, Any], *, is_open: bool) -> None:
    operation["security"] = [] if is_open else [{_SCHEME: []}]
    if not is_open:
        responses = errors(UNAUTHORIZED, RATE_LIMITED)
        # A route's own description of these takes precedence.
        operation["responses"] = {
            str(status): response for status, response in responses.items()
        } | operation["responses"]


def describe(application: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas that only problems and events use."""
    document = get_openapi(
        title=application.title,
        version=application.version,
        description=application.description,
        routes=application.routes,
        tags=application.openapi_tags,
    )
    document["components"]["securitySchemes"] = {_SCHEME: _BEARER}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            _describe_access(operation, is_open=path in OPEN_PATHS)
    schemas = document["components"]["schemas"]
    for name, model in (("Problem", ProblemDocument), ("Event", IncomingEvent)):
        schema = model.model_json_schema(ref_template=_SCHEMAS + "{model}")
        schemas |= schema.pop("$defs", {})
        schemas[name] = schema
    document["webhooks"] = describe_notices(schemas, _SCHEMAS + "{model}")
    return document
