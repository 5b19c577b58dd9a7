"""The table of errors and problems: the only place where errors get an HTTP status."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from app.domain.states import TERMINAL, ReplayState, moves
from app.domain.windows import WindowRefused, not_retained
from app.http.problems import (
    BODY_TOO_LARGE,
    BUSY,
    FORBIDDEN,
    ILLEGAL_MOVE,
    INTERNAL,
    INVALID_REQUEST,
    KEY_REUSED,
    MEDIA_TYPE_REFUSED,
    NOT_FOUND,
    NOT_VALIDATED,
    NOTHING_TO_RESTORE,
    NOTHING_TO_RETRY,
    RATE_LIMITED,
    REPLAY_ACTIVE,
    TOO_MANY_GRANTS,
    TOO_MANY_NOTICE_ENDPOINTS,
    TOO_MANY_RESENDS,
    TOO_MANY_RULES,
    TOO_MANY_STREAMS,
    TOO_MANY_WEBHOOKS,
    UNAVAILABLE,
    URL_REFUSED,
    WEBHOOK_NOT_ENABLED,
    WINDOW_REFUSED,
    Kind,
    Problem,
    field_errors,
    problem_of_status,
)
from app.http.request_limits import BodyTooLarge
from app.log.errors import (
    BrowseRefused,
    EstimatesBusy,
    InspectionsBusy,
    LogError,
    NotInLog,
    PublishFailed,
    WindowNotRetained,
)
from app.services.errors import (
    AccountNotAllowed,
    DeliveriesNotRetained,
    DeliveryNotFound,
    EventIndexBehind,
    EventNotFound,
    FieldError,
    InvalidRequest,
    NoStreamsLeft,
    NotRestoredHere,
    OperatorKeyRequired,
    RateLimited,
    ReadOnlyKey,
    ReceiverNotVerified,
    RequestRefused,
    RestoreExpired,
    TooManyEvents,
    TooManyStreams,
    UnknownEvent,
    UnknownReceivers,
    WebhookNotEnabled,
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
    StoreError,
    StoreUnavailable,
    TooManyGrants,
    TooManyNoticeEndpoints,
    TooManyResends,
    TooManyRules,
    TooManyWebhooks,
)
from app.webhooks.guard import UrlRefused

JSON_TYPE: Final = "application/json"

EXPECTED_ERRORS: Final = (
    Problem,
    RequestRefused,
    StoreError,
    LogError,
    UrlRefused,
    WindowRefused,
)
"""What services, and the packages below them, raise for requests."""

_JSON_TYPES: Final = re.compile(r"application/([^;/]+\+)?json\s*(;.*)?", re.IGNORECASE)

_RETRY_SOON: Final = {"retry-after": "1"}

_INSUFFICIENT_SCOPE: Final = {
    "www-authenticate": 'Bearer realm="rewind", error="insufficient_scope"'
}

_KINDS: Final[Mapping[type[RequestRefused], Kind]] = {
    InvalidRequest: INVALID_REQUEST,
    TooManyEvents: BODY_TOO_LARGE,
    AccountNotAllowed: FORBIDDEN,
    OperatorKeyRequired: FORBIDDEN,
    ReadOnlyKey: FORBIDDEN,
    DeliveryNotFound: NOT_FOUND,
    EventNotFound: NOT_FOUND,
    UnknownEvent: NOT_FOUND,
    EventIndexBehind: UNAVAILABLE,
    UnknownReceivers: NOT_FOUND,
    WebhookNotEnabled: WEBHOOK_NOT_ENABLED,
    ReceiverNotVerified: NOT_VALIDATED,
    DeliveriesNotRetained: WINDOW_REFUSED,
    RestoreExpired: WINDOW_REFUSED,
    NotRestoredHere: NOTHING_TO_RESTORE,
    RateLimited: RATE_LIMITED,
    TooManyStreams: TOO_MANY_STREAMS,
    NoStreamsLeft: BUSY,
}


def problem_of(error: Exception, media_type: str = "") -> Problem:
    """The problem of an error; `media_type` is that of the request's body."""
    if isinstance(error, RequestValidationError):
        return _of_validation(error.errors(), media_type)
    for error_type, translate in _TRANSLATIONS.items():
        if isinstance(error, error_type):
            return translate(error)
    # The cause may name things that clients must not see: it goes to the log.
    return Problem(INTERNAL, "unexpected error; see the server's log")


def _of_refusal(error: RequestRefused) -> Problem:
    headers: Mapping[str, str] = {}
    if isinstance(error, OperatorKeyRequired | ReadOnlyKey):
        headers = _INSUFFICIENT_SCOPE
    if error.retry_after_s is not None:
        headers = {"retry-after": str(error.retry_after_s)}
    return Problem(_KINDS[type(error)], error.detail, error.fields, headers=headers)


def _of_validation(details: Sequence[Any], media_type: str) -> Problem:
    # Without a JSON media type, FastAPI validates a body as bytes.
    is_no_object = any(detail["type"] == "model_attributes_type" for detail in details)
    if is_no_object and not _JSON_TYPES.fullmatch(media_type):
        return media_type_refused(media_type, JSON_TYPE)
    # The first part of a location is "body", "query", "path" or "header".
    stripped = [{**detail, "loc": _location(detail)} for detail in details]
    return Problem.of_fields(INVALID_REQUEST, field_errors(stripped))


def _location(detail: Mapping[str, Any]) -> tuple[int | str, ...]:
    # For invalid JSON, the rest of the location is the position of the error.
    return () if detail["type"] == "json_invalid" else tuple(detail["loc"][1:])


def media_type_refused(media_type: str, allowed: str) -> Problem:
    """The problem of a body whose media type the route does not support."""
    problem = Problem.of_fields(
        MEDIA_TYPE_REFUSED, [FieldError("content-type", media_type, allowed)]
    )
    # RFC 9110 section 15.5.16: the supported types.
    problem.headers = {"accept": allowed}
    return problem


def _of_http(error: HTTPException) -> Problem:
    if error.status_code == INVALID_REQUEST.status:
        # FastAPI's answer to JSON that is nested too deeply, or not text.
        return Problem.of_fields(INVALID_REQUEST, [FieldError("body", None, "JSON")])
    if error.status_code == NOT_FOUND.status:
        return Problem(NOT_FOUND, "no route has this path")
    return problem_of_status(error.status_code, error.detail, error.headers)


def _of_window(error: WindowRefused) -> Problem:
    wrong = FieldError(error.field, error.value, error.allowed)
    return Problem(WINDOW_REFUSED, f"{error.reason}: {wrong.sentence()}", [wrong])


def _of_page(error: BrowseRefused) -> Problem:
    wrong = FieldError(error.field, error.value, error.allowed)
    return Problem.of_fields(INVALID_REQUEST, [wrong])


def _of_lost_history(error: WindowNotRetained) -> Problem:
    return _of_window(not_retained(error.from_ms, error.available_from_ms))


def _of_publishing(error: PublishFailed) -> Problem:
    detail = (
        f"{len(error.event_ids)} of {error.of} events were not acknowledged by the log, but may be "
        "stored; send the request again, events are deduplicated by id"
    )
    members = {"unavailable": ["log"]}
    return Problem(UNAVAILABLE, detail, members=members, headers=_RETRY_SOON)


def _of_url(error: UrlRefused) -> Problem:
    wrong = FieldError(error.field.replace(" ", "."), error.value, error.allowed)
    return Problem.of_fields(URL_REFUSED, [wrong])


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
    wrong = FieldError("state", state.value, names)
    return Problem(ILLEGAL_MOVE, detail, [wrong])


def _of_reused_key(error: IdempotencyConflict) -> Problem:
    wrong = FieldError("Idempotency-Key", error.key, "a key without a different request")
    return Problem.of_fields(KEY_REUSED, [wrong])


def _of_cursor(error: InvalidCursor) -> Problem:
    wrong = FieldError("cursor", error.cursor, "the nextCursor of the previous page")
    return Problem.of_fields(INVALID_REQUEST, [wrong])


def _unavailable(which: str) -> Callable[[Exception], Problem]:
    def translate(_error: Exception) -> Problem:
        # The cause may name hosts and users: it goes to the log.
        members = {"unavailable": [which]}
        return Problem(
            UNAVAILABLE, f"the {which} does not answer", members=members, headers=_RETRY_SOON
        )

    return translate


_TRANSLATIONS: Final[Mapping[type[Exception], Callable[[Any], Problem]]] = {
    Problem: lambda problem: problem,
    RequestRefused: _of_refusal,
    BodyTooLarge: BodyTooLarge.problem,
    # The client has disconnected and does not read the response.
    ClientDisconnect: lambda _error: Problem(INVALID_REQUEST, "the body is incomplete"),
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
    TooManyResends: lambda error: Problem(TOO_MANY_RESENDS, str(error)),
    TooManyGrants: lambda error: Problem(TOO_MANY_GRANTS, str(error)),
    TooManyNoticeEndpoints: lambda error: Problem(TOO_MANY_NOTICE_ENDPOINTS, str(error)),
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
