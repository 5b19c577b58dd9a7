"""Error responses in the form of Twitter's replay API: `{"errors": [{"code", "message"}]}`.

Source: Twitter, Account Activity Replay API (v1.1), "Error messages".
"""

import json
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from app.http.problems import (
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
    Kind,
    Problem,
)
from app.services.errors import FieldError

PATH_PREFIX: Final = "/1.1/"
"""All errors of paths below it have Twitter's form."""

NEGATIVE_ID: Final = Kind("negative-id", 400, "Negative id in the path")
NOT_PAST: Final = Kind("not-past", 400, "Date is not in the past")

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
    FORBIDDEN: (403, 200, "Not permitted for this API key"),
    NOT_FOUND: (404, 34, "No such webhook, or it belongs to another application"),
    REPLAY_ACTIVE: (409, 355, "A replay job is already in progress for this webhook."),
    RATE_LIMITED: (429, 88, "Rate limit exceeded"),
    INTERNAL: (500, 0, "Internal error"),
    UNAVAILABLE: (503, 67, "The service is unavailable; try again soon"),
    BUSY: (503, 67, "The service is busy; try again soon"),
}
"""Status, code and message of each kind of problem that this route has."""


def twitter_response(problem: Problem) -> Response:
    """The HTTP response of a problem in Twitter's form."""
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
    # Problems without an entry in Twitter's list, such as an unsupported method.
    return problem.kind.status, [(MALFORMED, f"{problem.kind.title}: {problem.detail}")]


def _of_field(error: FieldError) -> tuple[int, str]:
    if error.allowed == REQUIRED:
        return MISSING, f"{error.field}: queryParam is required"
    return MALFORMED, f"Unable to parse parameter: {error.sentence()}"
