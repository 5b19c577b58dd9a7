"""Which error becomes which problem: the only place where errors turn into HTTP."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.limits import BodyTooLarge
from app.api.problems import (
    BUSY,
    ILLEGAL_MOVE,
    INTERNAL,
    INVALID_REQUEST,
    KEY_REUSED,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOTHING_TO_RESTORE,
    NOTHING_TO_RETRY,
    REPLAY_ACTIVE,
    TOO_MANY_RULES,
    TOO_MANY_WEBHOOKS,
    UNAVAILABLE,
    URL_REFUSED,
    WINDOW_REFUSED,
    FieldError,
    Problem,
    field_errors,
    problem_of_status,
)
from app.api.request_log import LOGGER
from app.api.twitter_errors import PATH_PREFIX, twitter_response
from app.domain.states import TERMINAL, ReplayState, moves
from app.domain.windows import WindowRefused, not_retained
from app.log.errors import (
    BrowseRefused,
    EstimatesBusy,
    InspectionsBusy,
    LogError,
    NotInLog,
    PublishFailed,
    WindowNotRetained,
)
from app.store.errors import (
    ActiveReplayExists,
    IdempotencyConflict,
    IllegalMove,
    InvalidCursor,
    NotFound,
    NothingToRestore,
    NothingToRetry,
    ReplayNotOver,
    SchemaOutdated,
    StoreUnavailable,
    TooManyRules,
    TooManyWebhooks,
)
from app.webhooks.guard import UrlRefused

JSON_TYPE: Final = "application/json"

_JSON_TYPES: Final = re.compile(r"application/([^;/]+\+)?json\s*(;.*)?", re.IGNORECASE)

_RETRY_SOON: Final = {"retry-after": "1"}


def install(application: FastAPI) -> None:
    """Let every error that reaches the application leave it as a problem document."""
    for error_type in (*_TRANSLATIONS, RequestValidationError, Exception):
        application.add_exception_handler(error_type, _answer)


async def refuse(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request, which the application never gets, with the problem that `error` is."""
    response = await _answer(Request(scope), error)
    await response(scope, receive, send)


async def _answer(request: Request, error: Exception) -> Response:
    problem = problem_of(error, request.headers.get("content-type", ""))
    if problem.kind is UNAVAILABLE and problem is not error:
        LOGGER.warning("unavailable", extra={"cause": str(error)})
    if problem.kind.status == HTTPStatus.METHOD_NOT_ALLOWED:
        # The framework names the methods of the first route alone that has the path.
        methods = request.app.state.operations().methods(request.scope["path"])
        problem.headers = {"allow": ", ".join(methods)}
    if request.scope["path"].startswith(PATH_PREFIX):
        return twitter_response(problem)
    return problem.response()


def problem_of(error: Exception, media_type: str) -> Problem:
    """The problem that an error is; `media_type` is that of the request it came from."""
    if isinstance(error, RequestValidationError):
        return _of_validation(error.errors(), media_type)
    for error_type, translate in _TRANSLATIONS.items():
        if isinstance(error, error_type):
            return translate(error)
    # What went wrong is for the log; it may name things that are none of the caller's business.
    return Problem(INTERNAL, "an unexpected error, which the log of the server tells about")


def _of_validation(details: Sequence[Any], media_type: str) -> Problem:
    # A body that is not announced as JSON reaches validation as bare bytes.
    is_no_object = any(detail["type"] == "model_attributes_type" for detail in details)
    if is_no_object and not _JSON_TYPES.fullmatch(media_type):
        return media_type_refused(media_type, JSON_TYPE)
    # The first part of a location names the body, the query, the path or the headers.
    stripped = [{**detail, "loc": _location(detail)} for detail in details]
    return Problem.of_fields(INVALID_REQUEST, field_errors(stripped))


def _location(detail: Mapping[str, Any]) -> tuple[int | str, ...]:
    # Of JSON that does not parse, the rest of the location is the place of the error.
    return () if detail["type"] == "json_invalid" else tuple(detail["loc"][1:])


def media_type_refused(media_type: str, allowed: str) -> Problem:
    """A body of a type that its route does not read."""
    problem = Problem.of_fields(
        MEDIA_TYPE_REFUSED, [FieldError("content-type", media_type, allowed)]
    )
    # RFC 9110 section 15.5.16: what would have been taken.
    problem.headers = {"accept": allowed}
    return problem


def _of_http(error: HTTPException) -> Problem:
    if error.status_code == INVALID_REQUEST.status:
        # What FastAPI makes of JSON that is too deep, or not even text.
        return Problem.of_fields(INVALID_REQUEST, [FieldError("body", None, "JSON")])
    if error.status_code == NOT_FOUND.status:
        return Problem(NOT_FOUND, "no route has this path")
    return problem_of_status(error.status_code, error.detail, error.headers)


def _of_window(error: WindowRefused) -> Problem:
    refused = FieldError(error.field, error.value, error.allowed)
    return Problem(WINDOW_REFUSED, f"{error.reason}: {refused.sentence()}", [refused])


def _of_page(error: BrowseRefused) -> Problem:
    refused = FieldError(error.field, error.value, error.allowed)
    return Problem.of_fields(INVALID_REQUEST, [refused])


def _of_lost_history(error: WindowNotRetained) -> Problem:
    return _of_window(not_retained(error.from_ms, error.available_from_ms))


def _of_publishing(error: PublishFailed) -> Problem:
    detail = (
        f"{len(error.event_ids)} of {error.of} events were not acknowledged by the log, which may "
        "hold them all the same: send the request again, an event is known by its id"
    )
    members = {"unavailable": ["log"]}
    return Problem(UNAVAILABLE, detail, members=members, headers=_RETRY_SOON)


def _of_url(error: UrlRefused) -> Problem:
    refused = FieldError(error.field.replace(" ", "."), error.value, error.allowed)
    return Problem.of_fields(URL_REFUSED, [refused])


def _of_active_replay(error: ActiveReplayExists) -> Problem:
    members = {"replayId": error.replay_id}
    return Problem(REPLAY_ACTIVE, str(error), members=members)


def _of_illegal_move(error: IllegalMove) -> Problem:
    return _of_state(error.state, moves(error.event), str(error))


def _of_early_retry(error: ReplayNotOver) -> Problem:
    return _of_state(error.state, TERMINAL, str(error))


def _of_state(state: ReplayState, allowed: Collection[ReplayState], detail: str) -> Problem:
    # In the order of a replay's life.
    names = ", ".join(each for each in ReplayState if each in allowed)
    refused = FieldError("state", state.value, names)
    return Problem(ILLEGAL_MOVE, detail, [refused])


def _of_reused_key(error: IdempotencyConflict) -> Problem:
    refused = FieldError("Idempotency-Key", error.key, "a key that named no other request")
    return Problem.of_fields(KEY_REUSED, [refused])


def _of_cursor(error: InvalidCursor) -> Problem:
    refused = FieldError("cursor", error.cursor, "the nextCursor of the page before")
    return Problem.of_fields(INVALID_REQUEST, [refused])


def _unavailable(which: str) -> Callable[[Exception], Problem]:
    def translate(_error: Exception) -> Problem:
        # The cause may name hosts and users: it goes to the log alone.
        members = {"unavailable": [which]}
        return Problem(
            UNAVAILABLE, f"the {which} does not answer", members=members, headers=_RETRY_SOON
        )

    return translate


_TRANSLATIONS: Final[Mapping[type[Exception], Callable[[Any], Problem]]] = {
    Problem: lambda problem: problem,
    BodyTooLarge: BodyTooLarge.problem,
    # Nobody reads the answer; it is no error of ours either.
    ClientDisconnect: lambda _error: Problem(INVALID_REQUEST, "the body ended before its end"),
    HTTPException: _of_http,
    WindowRefused: _of_window,
    UrlRefused: _of_url,
    NotFound: lambda error: Problem(NOT_FOUND, str(error)),
    ActiveReplayExists: _of_active_replay,
    IllegalMove: _of_illegal_move,
    ReplayNotOver: _of_early_retry,
    NothingToRestore: lambda error: Problem(NOTHING_TO_RESTORE, str(error)),
    NothingToRetry: lambda error: Problem(NOTHING_TO_RETRY, str(error)),
    IdempotencyConflict: _of_reused_key,
    TooManyRules: lambda error: Problem(TOO_MANY_RULES, str(error)),
    TooManyWebhooks: lambda error: Problem(TOO_MANY_WEBHOOKS, str(error)),
    InvalidCursor: _of_cursor,
    StoreUnavailable: _unavailable("database"),
    SchemaOutdated: _unavailable("database"),
    WindowNotRetained: _of_lost_history,
    PublishFailed: _of_publishing,
    EstimatesBusy: lambda error: Problem(BUSY, str(error), headers=_RETRY_SOON),
    InspectionsBusy: lambda error: Problem(BUSY, str(error), headers=_RETRY_SOON),
    NotInLog: lambda error: Problem(NOT_FOUND, str(error)),
    BrowseRefused: _of_page,
    LogError: _unavailable("log"),
}
