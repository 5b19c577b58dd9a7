"""Problem documents: every error response of the API.

Source: RFC 9457. `field`, `value` and `allowed` are those of the first wrong field; with several,
`errors` lists them all.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from starlette.responses import Response

from app.services.errors import FIELD_ERRORS_MAX, VALUE_CHARACTERS_MAX, FieldError, join_sentences

MEDIA_TYPE: Final = "application/problem+json"

REQUIRED: Final = "required"
"""What is allowed for a missing member."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: `slug` ends its type URI, `title` is the same for every occurrence."""

    slug: str
    status: int
    title: str


INVALID_REQUEST: Final = Kind("invalid-request", 400, "Invalid request")
WINDOW_REFUSED: Final = Kind("window-refused", 400, "Window cannot be replayed")
URL_REFUSED: Final = Kind("url-refused", 400, "URL not allowed")
UNAUTHORIZED: Final = Kind("unauthorized", 401, "API key required")
FORBIDDEN: Final = Kind("forbidden", 403, "Not permitted for this API key")
NOT_FOUND: Final = Kind("not-found", 404, "Not found")
REPLAY_ACTIVE: Final = Kind("replay-active", 409, "The webhook has an active replay")
ILLEGAL_MOVE: Final = Kind("illegal-move", 409, "Not possible in this state of the replay")
NOTHING_TO_RETRY: Final = Kind("nothing-to-retry", 409, "The replay delivered everything")
NOTHING_TO_RESTORE: Final = Kind(
    "nothing-to-restore", 409, "The replay does not wait for a restore"
)
WEBHOOK_NOT_ENABLED: Final = Kind("webhook-not-enabled", 409, "Webhook not enabled")
TOO_MANY_RULES: Final = Kind("too-many-rules", 409, "Too many rules")
TOO_MANY_GRANTS: Final = Kind("too-many-grants", 409, "Too many grants for the account")
TOO_MANY_WEBHOOKS: Final = Kind("too-many-webhooks", 409, "Too many webhooks for the account")
TOO_MANY_RESENDS: Final = Kind("too-many-resends", 409, "Too many pending resends")
TOO_MANY_NOTICE_ENDPOINTS: Final = Kind(
    "too-many-notice-endpoints", 409, "Too many notice endpoints for the account"
)
BODY_TOO_LARGE: Final = Kind("body-too-large", 413, "Request body too large")
URL_TOO_LONG: Final = Kind("url-too-long", 414, "URL too long")
MEDIA_TYPE_REFUSED: Final = Kind("media-type-refused", 415, "Unsupported media type")
KEY_REUSED: Final = Kind(
    "idempotency-key-reused", 422, "Idempotency-Key was used with a different request"
)
NOT_VALIDATED: Final = Kind("not-validated", 422, "Receiver verification failed")
TOO_MANY_STREAMS: Final = Kind("too-many-streams", 429, "Too many open streams for the API key")
RATE_LIMITED: Final = Kind("rate-limited", 429, "Too many requests")
HEADERS_TOO_LARGE: Final = Kind("headers-too-large", 431, "Request headers too large")
INTERNAL: Final = Kind("internal", 500, "Internal server error")
BUSY: Final = Kind("busy", 503, "Too many concurrent requests")
UNAVAILABLE: Final = Kind("unavailable", 503, "Log or database unavailable")


@dataclass(eq=False)
class Problem(Exception):
    """An error response. `members` are extensions of its kind."""

    kind: Kind
    detail: str
    errors: Sequence[FieldError] = ()
    members: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_fields(cls, kind: Kind, errors: Sequence[FieldError]) -> "Problem":
        """A problem of wrong fields; it lists at most twenty."""
        return cls(kind, join_sentences(errors), errors[:FIELD_ERRORS_MAX])

    def document(self) -> dict[str, object]:
        """The members of the problem document."""
        document: dict[str, object] = {
            "type": f"urn:rewind:problem:{self.kind.slug}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
        }
        if self.errors:
            document |= self.errors[0].members()
        if len(self.errors) > 1:
            document["errors"] = [error.members() for error in self.errors]
        return document | dict(self.members)

    def response(self) -> Response:
        """The HTTP response."""
        content = json.dumps(self.document(), ensure_ascii=False).encode(errors="replace")
        return Response(content, self.kind.status, self.headers, MEDIA_TYPE)


def problem_of_status(status: int, detail: str, headers: Mapping[str, str] | None) -> Problem:
    """A problem of which only the HTTP status is known."""
    phrase = HTTPStatus(status).phrase
    kind = Kind(phrase.lower().replace(" ", "-"), status, phrase)
    return Problem(kind, detail, headers=headers or {})


def field_errors(details: Iterable[Mapping[str, Any]], root: str = "") -> list[FieldError]:
    """The errors of a Pydantic validation, with paths such as `events[3].data` below `root`."""
    return [
        FieldError(_path(root, (*detail["loc"], *_place(detail))), _value(detail), _allowed(detail))
        for detail in details
    ]


def _place(detail: Mapping[str, Any]) -> Sequence[int | str]:
    """Where the wrong part of the value is, if the error says so: see `patterns.PatternInvalid`."""
    return getattr(detail.get("ctx", {}).get("error"), "place", ())


def _path(root: str, location: Sequence[int | str]) -> str:
    path = root
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part[:VALUE_CHARACTERS_MAX]}"
    return path.removeprefix(".") or "body"


_SECRETS: Final = frozenset({"secret", "headers", "authentication"})
"""Members whose values, and values within, are not repeated."""


def _value(detail: Mapping[str, Any]) -> object:
    # For a missing member, pydantic gives the object that lacks it. An unknown member may be a
    # secret under a misspelt name.
    is_without = detail["type"] in ("missing", "json_invalid", "extra_forbidden")
    if is_without or not _SECRETS.isdisjoint(detail["loc"]):
        return None
    return getattr(detail.get("ctx", {}).get("error"), "value", detail["input"])


_ALLOWED: Final = {
    "missing": REQUIRED,
    "extra_forbidden": "a known field",
    "model_attributes_type": "a JSON object",
    "model_type": "a JSON object",
}


def _allowed(detail: Mapping[str, Any]) -> str:
    context: Mapping[str, Any] = detail.get("ctx", {})
    if (fixed := _ALLOWED.get(detail["type"])) is not None:
        return fixed
    match detail["type"]:
        case "value_error":
            return str(getattr(context["error"], "allowed", context["error"]))
        case "string_pattern_mismatch":
            return f"a text that matches {context['pattern']}"
        case "json_invalid":
            return f"JSON ({context['error']})"
        case "union_tag_invalid" | "union_tag_not_found":
            return f"`type`: {context.get('expected_tags', REQUIRED)}"
        case "too_short":
            return f"{context['min_length']} or more of them"
        case "too_long":
            return f"{context['max_length']} of them at most"
        case _:
            return str(detail["msg"]).removeprefix("Input should be ")
