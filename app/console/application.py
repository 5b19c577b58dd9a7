"""The console as an application: its pages, behind its own gate, beside the API it stands on."""

from functools import cache
from typing import Final

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.doors import Doors
from app.api.head_limit import HeadLimit
from app.api.limits import BodyLimit
from app.api.request_log import RequestLog
from app.console import (
    bulk,
    job,
    jobs,
    log,
    messages,
    new_replay,
    pipeline,
    processes,
    refusals,
    sign_in,
    static_files,
    webhook,
    webhook_actions,
    webhook_registration,
    webhooks,
)
from app.console.gate import Gate
from app.console.headers import SecurityHeaders
from app.console.health import HealthWatch
from app.console.live import stream
from app.console.live.broadcast import Broadcaster
from app.console.live.parts import PartMaker
from app.console.rendering import Renderer

PREFIX: Final = "/console"

PAGES: Final = (
    sign_in,
    jobs,
    bulk,
    new_replay,
    job,
    webhooks,
    webhook_registration,
    webhook,
    webhook_actions,
    log,
    messages,
    processes,
    pipeline,
    stream,
    static_files,
)


class Front:
    """Hands what is asked for below `/console` to the console, and all else to the API."""

    def __init__(self, api: ASGIApp, console: ASGIApp) -> None:
        self._api = api
        self._console = console

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the start and the end of the process, which are the API's."""
        path = scope.get("path", "")
        is_console = path == PREFIX or path.startswith(f"{PREFIX}/")
        await (self._console if is_console else self._api)(scope, receive, send)


def with_console(api: FastAPI) -> ASGIApp:
    """The API with the console in front of it, on the same doors."""
    return Front(api, create_console(api.state.doors))


def create_console(doors: Doors) -> FastAPI:
    """The console on these doors; it neither opens nor closes any of them."""
    application = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    application.state.doors = doors
    application.state.gate = Gate(doors)
    health = HealthWatch(doors)
    renderer = Renderer(health, doors.settings.lease_s)
    application.state.renderer = renderer
    application.state.broadcaster = Broadcaster(
        doors, health, PartMaker(doors, renderer.environment)
    )
    application.add_middleware(BodyLimit, events_bytes_max=0)
    application.add_middleware(HeadLimit)
    application.add_middleware(SecurityHeaders)
    application.add_middleware(RequestLog, metrics=doors.metrics)
    refusals.install(application)
    application.router.routes.extend(_routes())
    return application


@cache
def _routes() -> list[BaseRoute]:
    """The routes of all pages, which hold no state: every application of a process shares them."""
    router = APIRouter()
    for module in PAGES:
        router.include_router(module.router, prefix=PREFIX)
    return router.routes
