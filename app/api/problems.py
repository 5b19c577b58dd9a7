"""What the API refuses, as problem documents.

Source: RFC 9457. `field`, `value` and `allowed` tell what to mend; with several things to
mend, `errors` lists them all and the first stands at the top.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from starlette.responses import Response

MEDIA_TYPE: Final = "application/problem+json"

REQUIRED: Final = "required"
"""What is allowed where something is missing."""

_VALUE_CHARACTERS_MAX: Final = 200
"""A value is shown to find it again, not to send it back whole."""

_FIELD_ERRORS_MAX: Final = 20
"""As many as a person mends in one go; ten thousand events may have as many errors."""


class FieldError(NamedTuple):
    """One thing to mend: where it is, what stood there, and what may stand there."""

    field: str
    value: object
    allowed: str

    def sentence(self) -> str:
        """The three in words."""
        if self.value is None:
            return f"{self.field}: {self.allowed}"
        return f"{self.field} is {_shown(self.value)!r}; allowed is {self.allowed}"

    def members(self) -> dict[str, object]:
        """The three as members of a problem document."""
        return {"field": self.field, "value": _shown(self.value), "allowed": self.allowed}


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of problem: `slug` ends its type URI, `title` is the same every time it occurs."""

    slug: str
    status: int
    title: str


INVALID_REQUEST: Final = Kind("invalid-request", 400, "The request is not valid")
WINDOW_REFUSED: Final = Kind("window-refused", 400, "The window cannot be replayed")
URL_REFUSED: Final = Kind("url-refused", 400, "No webhook may have this URL")
UNAUTHORIZED: Final = Kind("unauthorized", 401, "The request needs an API key")
FORBIDDEN: Final = Kind("forbidden", 403, "The API key does not open this")
NOT_FOUND: Final = Kind("not-found", 404, "There is no such thing here")
REPLAY_ACTIVE: Final = Kind("replay-active", 409, "A replay of this webhook is active already")
ILLEGAL_MOVE: Final = Kind("illegal-move", 409, "The state of the replay does not allow this")
NOTHING_TO_RETRY: Final = Kind("nothing-to-retry", 409, "The replay has given nothing up")
NOTHING_TO_RESTORE: Final = Kind(
    "nothing-to-restore", 409, "The replay waits for no records to be restored"
)
WEBHOOK_NOT_ENABLED: Final = Kind("webhook-not-enabled", 409, "The webhook is not enabled")
TOO_MANY_RULES: Final = Kind("too-many-rules", 409, "The webhook has as many rules as it may have")
TOO_MANY_WEBHOOKS: Final = Kind(
    "too-many-webhooks", 409, "The account has as many webhooks as it may have"
)
BODY_TOO_LARGE: Final = Kind("body-too-large", 413, "The body of the request is too large")
URL_TOO_LONG: Final = Kind("url-too-long", 414, "The URL of the request is too long")
MEDIA_TYPE_REFUSED: Final = Kind("media-type-refused", 415, "The media type is not read here")
KEY_REUSED: Final = Kind("idempotency-key-reused", 422, "The Idempotency-Key has another request")
NOT_VALIDATED: Final = Kind("not-validated", 422, "The receiver did not prove to be its owner's")
TOO_MANY_STREAMS: Final = Kind("too-many-streams", 429, "The key has too many streams open")
RATE_LIMITED: Final = Kind("rate-limited", 429, "Too many requests in a minute")
HEADERS_TOO_LARGE: Final = Kind(
    "headers-too-large", 431, "The headers of the request are too large"
)
INTERNAL: Final = Kind("internal", 500, "Something went wrong here")
BUSY: Final = Kind("busy", 503, "As much of this is going on as may be")
UNAVAILABLE: Final = Kind("unavailable", 503, "The log or the database does not answer")


@dataclass(eq=False)
class Problem(Exception):
    """A refusal, with everything its document says. `members` are those of its kind alone."""

    kind: Kind
    detail: str
    errors: Sequence[FieldError] = ()
    members: Mapping[str, object] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_fields(cls, kind: Kind, errors: Sequence[FieldError]) -> "Problem":
        """A problem that lies in fields, its detail made of theirs; at most twenty are told."""
        shown = errors[:_FIELD_ERRORS_MAX]
        sentences = [error.sentence() for error in shown]
        if len(errors) > len(shown):
            sentences.append(f"and {len(errors) - len(shown)} more")
        return cls(kind, "; ".join(sentences), shown)

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
        """The HTTP answer."""
        content = json.dumps(self.document(), ensure_ascii=False).encode(errors="replace")
        return Response(content, self.kind.status, self.headers, MEDIA_TYPE)


def problem_of_status(status: int, detail: str, headers: Mapping[str, str] | None) -> Problem:
    """A problem of which nothing more is known than its HTTP status."""
    phrase = HTTPStatus(status).phrase
    kind = Kind(phrase.lower().replace(" ", "-"), status, phrase)
    return Problem(kind, detail, headers=headers or {})


def field_errors(details: Iterable[Mapping[str, Any]], root: str = "") -> list[FieldError]:
    """What a failed validation found, with paths such as `events[3].data`; `root` stands first."""
    return [
        FieldError(_path(root, detail["loc"]), _value(detail), _allowed(detail))
        for detail in details
    ]


def _path(root: str, location: Sequence[int | str]) -> str:
    path = root
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".") or "body"


def _value(detail: Mapping[str, Any]) -> object:
    # For a member that is missing, pydantic gives the object it is missing in.
    return None if detail["type"] in ("missing", "json_invalid") else detail["input"]


def _allowed(detail: Mapping[str, Any]) -> str:
    context: Mapping[str, Any] = detail.get("ctx", {})
    match detail["type"]:
        case "value_error":
            return str(getattr(context["error"], "allowed", context["error"]))
        case "missing":
            return REQUIRED
        case "extra_forbidden":
            return "no member of this name"
        case "string_pattern_mismatch":
            return f"a text that matches {context['pattern']}"
        case "model_attributes_type" | "model_type":
            return "a JSON object"
        case "json_invalid":
            return f"JSON ({context['error']})"
        case "too_short":
            return f"{context['min_length']} or more of them"
        case "too_long":
            return f"{context['max_length']} of them at most"
        case _:
            return str(detail["msg"]).removeprefix("Input should be ")


def _shown(value: object) -> object:
    if value is None or isinstance(value, bool | int):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _VALUE_CHARACTERS_MAX else text[:_VALUE_CHARACTERS_MAX] + "..."
