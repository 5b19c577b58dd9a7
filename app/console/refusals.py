"""What goes wrong, as a page: the API's problems in the words of the API."""

from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from app.api.problems import UNAVAILABLE, Problem
from app.api.refusals import problem_of
from app.api.request_log import LOGGER
from app.console.audit import note_refusal
from app.console.gate import SignInNeeded
from app.console.headers import HEADERS
from app.console.rendering import rendered
from app.console.sign_in import NEXT_CHARACTERS_MAX
from app.domain.windows import WindowRefused
from app.log.errors import LogError
from app.store import StoreError
from app.webhooks.guard import UrlRefused


def install(application: FastAPI) -> None:
    """Let every error that reaches the console leave it as a page."""
    application.add_exception_handler(SignInNeeded, _to_sign_in)
    for error_type in (
        Problem,
        StoreError,
        LogError,
        UrlRefused,
        WindowRefused,
        HTTPException,
        RequestValidationError,
        Exception,
    ):
        application.add_exception_handler(error_type, _page)


async def _to_sign_in(request: Request, _error: Exception) -> Response:
    if request.headers.get("accept", "").startswith("text/event-stream"):
        # A stream would follow a redirect, and take the page for events.
        return Response(status_code=401)
    note_refusal(request, 401)
    asked_for = request.url.path
    if request.url.query:
        asked_for += f"?{request.url.query}"
    # What a form wanted to change is not done later, by a redirect.
    is_kept = request.method == "GET" and len(asked_for) <= NEXT_CHARACTERS_MAX
    query = urlencode({"next": asked_for}) if is_kept else ""
    return RedirectResponse(f"/console/sign-in?{query}".rstrip("?"), 303)


async def _page(request: Request, error: Exception) -> Response:
    problem = problem_of(error, request.headers.get("content-type", ""))
    if problem.kind is UNAVAILABLE and problem is not error:
        LOGGER.warning("unavailable", extra={"cause": str(error)})
    note_refusal(request, problem.kind.status)
    response = await rendered(request, "problem.html", problem.kind.status, problem=problem)
    # What nobody foresaw is answered outside of what gives all other pages these.
    response.headers.update(HEADERS | {"cache-control": "no-store"})
    response.headers.update(problem.headers)
    return response
