"""The console as an ASGI application in front of the API, with security headers and error pages.

Source: Content Security Policy Level 3; OWASP HTTP Headers Cheat Sheet.
"""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.console import (
    bulk,
    deliveries,
    delivery,
    delivery_search,
    event,
    failures,
    job,
    jobs,
    live_stream,
    log,
    messages,
    new_replay,
    notice_endpoint,
    notice_endpoints,
    overview,
    rules,
    sign_in,
    static_files,
    webhook,
    webhook_actions,
    webhooks,
)
from app.console.audit import log_rejected_change
from app.console.delivery_sums import DeliverySumsReader
from app.console.health import HealthMonitor
from app.console.live_broadcast import Broadcaster
from app.console.rendering import Renderer, render_page
from app.console.sessions import SessionGuard, SignInNeeded
from app.console.sign_in import NEXT_CHARACTERS_MAX
from app.console.urls import PREFIX
from app.http.error_table import EXPECTED_ERRORS, problem_of
from app.http.problems import UNAVAILABLE
from app.http.request_limits import BodyLimit, HeadLimit, OpenPathLimit
from app.http.request_log import LOGGER, RequestLog
from app.services.services import Services

SIGN_IN: Final = f"{PREFIX}/sign-in"

PAGES: Final = (
    sign_in,
    delivery_search,
    deliveries,
    # Before the page of a delivery, whose path matches.
    failures,
    delivery,
    overview,
    event,
    jobs,
    bulk,
    new_replay,
    job,
    webhooks,
    webhook,
    webhook_actions,
    rules,
    # Before the page of an endpoint, whose path matches that of the form for a new one.
    notice_endpoints,
    notice_endpoint,
    log,
    messages,
    live_stream,
    static_files,
)

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    # For browsers without support for frame-ancestors.
    "x-frame-options": "DENY",
}


class ConsoleSwitch:
    """Routes requests below `/console` to the console and all others to the API."""

    def __init__(self, api: ASGIApp, console: ASGIApp) -> None:
        self._api = api
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. Lifespan events go to the API."""
        path = scope.get("path", "")
        is_console = path == PREFIX or path.startswith(f"{PREFIX}/")
        await (self._console if is_console else self._api)(scope, receive, send)


class SecurityHeaders:
    """Adds `HEADERS` to every response, and `no-store` to those without Cache-Control."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await self._app(scope, receive, send_with_headers)


def _is_open(path: str) -> bool:
    """Whether a page needs no session: the sign-in page, its files, and redirects to it."""
    return path in (PREFIX, SIGN_IN) or path.startswith(f"{PREFIX}/static/")


def create_console(services: Services) -> FastAPI:
    """Return the console. It neither opens nor closes its dependencies."""
    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    application.state.services = services
    application.state.sessions = SessionGuard(services)
    application.state.delivery_sums = DeliverySumsReader(services)
    health = HealthMonitor(services)
    renderer = Renderer(health, services.settings.lease_s)
    application.state.renderer = renderer
    application.state.broadcaster = Broadcaster(services, health, renderer.environment)
    application.add_middleware(BodyLimit, events_bytes_max=0)
    application.add_middleware(OpenPathLimit, _is_open, services)
    application.add_middleware(HeadLimit)
    application.add_middleware(SecurityHeaders)
    application.add_middleware(RequestLog, metrics=services.metrics)
    _add_error_pages(application)
    application.router.routes.extend(_routes())
    return application


def _routes() -> Iterator[BaseRoute]:
    """Return the routes of all pages. They are stateless, so applications share them.

    In one list: FastAPI tries the routes of an included router twice for each request.
    """
    for module in PAGES:
        yield from module.router.routes


def _add_error_pages(application: FastAPI) -> None:
    application.add_exception_handler(SignInNeeded, _redirect_to_sign_in)
    for error_type in (*EXPECTED_ERRORS, HTTPException, RequestValidationError, Exception):
        application.add_exception_handler(error_type, _error_page)


async def _redirect_to_sign_in(request: Request, _error: Exception) -> Response:
    if request.headers.get("accept", "").startswith("text/event-stream"):
        # An EventSource would follow the redirect and parse the sign-in page as events.
        return Response(status_code=401)
    log_rejected_change(request, 401)
    requested = request.url.path
    if request.url.query:
        requested += f"?{request.url.query}"
    # A redirect after the sign-in must not repeat a change.
    is_kept = request.method == "GET" and len(requested) <= NEXT_CHARACTERS_MAX
    query = urlencode({"next": requested}) if is_kept else ""
    return RedirectResponse(f"/console/sign-in?{query}".rstrip("?"), 303)


async def _error_page(request: Request, error: Exception) -> Response:
    problem = problem_of(error, request.headers.get("content-type", ""))
    if problem.kind is UNAVAILABLE and problem is not error:
        LOGGER.warning("unavailable", extra={"cause": str(error)})
    log_rejected_change(request, problem.kind.status)
    response = await render_page(request, "problem.html", problem.kind.status, problem=problem)
    # Starlette handles `Exception` outside of the middleware that adds these headers.
    response.headers.update(HEADERS | {"cache-control": "no-store"})
    response.headers.update(problem.headers)
    return response
