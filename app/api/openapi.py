"""The description of the API, as machines read it."""

from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from app.api.gate import OPEN_PATHS
from app.api.incoming import EVENT_EXAMPLE, IncomingEvent
from app.api.problems import MEDIA_TYPE, RATE_LIMITED, UNAUTHORIZED, Kind

TITLE: Final = "Rewind"
VERSION: Final = version("rewind")
DESCRIPTION: Final = """\
Events that are owed to a webhook lie in a log. When its receiver was down, `POST /replays`
brings exactly the events of a window to it again.

Times in requests are RFC 3339 with any offset, or `yyyymmddhhmm` in UTC; times in answers are
RFC 3339 in UTC. Refusals are problem documents (RFC 9457).

Requests carry an API key: `Authorization: Bearer rwk_...`. A developer's key opens the webhooks
and replays of its account; those of others are answered as if they did not exist. An operator's
key opens all. Answers say how many requests a key has left (`RateLimit-Remaining`) and in how
many seconds all are back (`RateLimit-Reset`).
"""
TAGS: Final = [
    {"name": "webhooks", "description": "Where events are sent."},
    {"name": "replays", "description": "Missed events, sent again."},
    {"name": "events", "description": "What happened, on its way into the log."},
    {"name": "log", "description": "What operators see of the log."},
    {"name": "operations", "description": "For those who run the service."},
]

_SCHEME: Final = "apiKey"
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "A key that `rewind keys create` made; it was shown once.",
}
_SCHEMAS: Final = "#/components/schemas/"


class FieldErrorDocument(BaseModel):
    """One thing to mend."""

    field: str
    value: Any
    allowed: str


class ProblemDocument(BaseModel):
    """A refusal (RFC 9457). `field`, `value` and `allowed` are those of the first error."""

    model_config = ConfigDict(title="Problem", extra="allow")

    type: str = Field(examples=["urn:rewind:problem:window-refused"])
    title: str
    status: int
    detail: str
    field: str | None = None
    value: Any = None
    allowed: str | None = None
    errors: list[FieldErrorDocument] | None = Field(None, description="When there are several.")
    replayId: str | None = Field(  # noqa: N815  # the name it has in JSON
        None, description="Of a second replay of a webhook: the one that is active."
    )
    unavailable: list[str] | None = Field(None, examples=[["log"]])


ANY_REFUSAL: Final[dict[int | str, dict[str, Any]]] = {
    "default": {
        "description": "Any other refusal.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": _SCHEMAS + "Problem"}}},
    }
}


def refusals(*kinds: Kind) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may refuse in these ways."""
    statuses = sorted({kind.status for kind in kinds})
    return {
        status: _refusal([kind for kind in kinds if kind.status == status]) for status in statuses
    }


def _refusal(kinds: list[Kind]) -> dict[str, Any]:
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
                "schema": {"type": "string", "description": "An event in each line."}
            },
        },
    }
}
"""The body of `POST /events`, which the route reads by itself."""


def _describe_access(operation: dict[str, Any], *, is_open: bool) -> None:
    operation["security"] = [] if is_open else [{_SCHEME: []}]
    if not is_open:
        refused = refusals(UNAUTHORIZED, RATE_LIMITED)
        # What a route says of these itself comes first: some have reasons or forms of their own.
        operation["responses"] = {
            str(status): answer for status, answer in refused.items()
        } | operation["responses"]


def describe(application: FastAPI) -> dict[str, Any]:
    """The OpenAPI document, with the schemas that only problems and events refer to."""
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
    return document
