"""Error responses of the API: problem documents, or Twitter's form below its path prefix."""

from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.twitter_errors import PATH_PREFIX, twitter_response
from app.http.error_table import EXPECTED_ERRORS, problem_of
from app.http.problems import UNAVAILABLE
from app.http.request_log import LOGGER


def install_error_handlers(application: FastAPI) -> None:
    """Make the application answer every error with a problem."""
    expected = (*EXPECTED_ERRORS, HTTPException, ClientDisconnect, RequestValidationError)
    for error_type in (*expected, Exception):
        application.add_exception_handler(error_type, _respond)


async def respond_with_error(error: Exception, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that a middleware rejects."""
    response = await _respond(Request(scope), error)
    await response(scope, receive, send)


async def _respond(request: Request, error: Exception) -> Response:
    problem = problem_of(error, request.headers.get("content-type", ""))
    if problem.kind is UNAVAILABLE and problem is not error:
        LOGGER.warning("unavailable", extra={"cause": str(error)})
    if problem.kind.status == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names only the methods of the path's first route.
        methods = request.app.state.operations.methods(request.scope["path"])
        problem.headers = {"allow": ", ".join(methods)}
    if request.scope["path"].startswith(PATH_PREFIX):
        return twitter_response(problem)
    return problem.response()
