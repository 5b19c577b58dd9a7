"""Refusals as Twitter's replay API words them: `{"errors": [{"code", "message"}]}`.

Source: Twitter, Account Activity Replay API (v1.1), "Error messages".
"""

import json
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from app.api.problems import (
    BUSY,
    FORBIDDEN,
    INTERNAL,
    INVALID_REQUEST,
    NOT_FOUND,
    RATE_LIMITED,
    REPLAY_ACTIVE,
    REQUIRED,
    UNAUTHORIZED,
    UNAVAILABLE,
    WEBHOOK_NOT_ENABLED,
    WINDOW_REFUSED,
    FieldError,
    Kind,
    Problem,
)

PATH_PREFIX: Final = "/1.1/"
"""Below it everything is answered in Twitter's form, whoever refuses it."""

NEGATIVE_ID: Final = Kind("negative-id", 400, "The id in the path is negative")
NOT_PAST: Final = Kind("not-past", 400, "The date is not in the past")

BAD_WINDOW: Final = 356
MISSING: Final = 357
MALFORMED: Final = 358
BAD_CREDENTIALS: Final = 61

_ANSWERS: Final[Mapping[Kind, tuple[int, int, str]]] = {
    WEBHOOK_NOT_ENABLED: (400, 214, "The webhook is not valid and must pass its check first"),
    WINDOW_REFUSED: (400, BAD_WINDOW, "The window cannot be replayed"),
    NEGATIVE_ID: (400, 360, "The id must not be negative"),
    NOT_PAST: (400, 368, "The date must lie in the past"),
    UNAUTHORIZED: (401, 32, "Authenticate with a bearer token of an application"),
    FORBIDDEN: (403, 200, "This key is not entitled to replays"),
    NOT_FOUND: (404, 34, "There is no such webhook, or it is another application's"),
    REPLAY_ACTIVE: (409, 355, "A replay job is already in progress for this webhook."),
    RATE_LIMITED: (429, 88, "Rate limit exceeded"),
    INTERNAL: (500, 0, "Internal error"),
    UNAVAILABLE: (503, 67, "The service is unavailable; try again soon"),
    BUSY: (503, 67, "The service is busy; try again soon"),
}
"""HTTP status, code and message of each kind of problem that this API can meet."""


def twitter_response(problem: Problem) -> Response:
    """The HTTP answer that a problem is to a client of Twitter's API."""
    status, errors = _errors(problem)
    content = json.dumps({"errors": [{"code": code, "message": text} for code, text in errors]})
    return Response(content, status, problem.headers, "application/json")


def _errors(problem: Problem) -> tuple[int, list[tuple[int, str]]]:
    if problem.kind is INVALID_REQUEST:
        return problem.kind.status, [_of_field(error) for error in problem.errors]
    if problem.kind in _ANSWERS:
        status, code, message = _ANSWERS[problem.kind]
        if "invalid_token" in problem.headers.get("www-authenticate", ""):
            code = BAD_CREDENTIALS
        return status, [(code, f"{message}: {problem.detail}" if problem.errors else message)]
    # What Twitter's own lists have no line for, such as a method or a body that is refused.
    return problem.kind.status, [(MALFORMED, f"{problem.kind.title}: {problem.detail}")]


def _of_field(error: FieldError) -> tuple[int, str]:
    if error.allowed == REQUIRED:
        return MISSING, f"{error.field}: queryParam is required"
    return MALFORMED, f"Unable to parse parameter: {error.sentence()}"
