"""The API as an application: routes, middleware and error responses."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, Final

from fastapi import FastAPI, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from app.api import (
    deliveries,
    error_responses,
    events,
    grants,
    log,
    notice_endpoints,
    operations,
    replay_progress,
    replays,
    restorations,
    rule_matches,
    rules,
    twitter,
    webhooks,
)
from app.api.admission import OPEN_PATHS, RequestAdmission
from app.api.audit import Audit, OperationTable
from app.api.openapi import DESCRIPTION, TAGS, TITLE, VERSION, describe
from app.http.request_limits import BodyLimit, HeadLimit, OpenPathLimit
from app.http.request_log import RequestLog
from app.services.services import Services
from app.services.single_flight import SingleFlight

# Routes are tried in this order: those that platforms use most come first.
ROUTES: Final = (
    events,
    replays,
    webhooks,
    rule_matches,
    deliveries,
    rules,
    grants,
    replay_progress,
    twitter,
    notice_endpoints,
    restorations,
    operations,
    log,
)


def create_app(services: Services) -> FastAPI:
    """The API on these services, which the caller closes."""
    application = FastAPI(
        title=TITLE,
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        redirect_slashes=False,
        # FastAPI's own route builds the document on the event loop.
        openapi_url=None,
        # FastAPI's pages load scripts from a CDN.
        docs_url=None,
        redoc_url=None,
        # Looking for an OpenTelemetry provider, by each request, would read the environment.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    application.state.services = services
    application.openapi = cache(lambda: describe(application))  # type: ignore[method-assign]
    operations = OperationTable.of(_routes())
    application.state.operations = operations
    # Each is outside of those added before it: the log and the audit see every response, and no
    # body is read before the admission.
    application.add_middleware(BodyLimit, events_bytes_max=services.settings.request_bytes_max)
    application.add_middleware(RequestAdmission, services)
    application.add_middleware(
        OpenPathLimit, OPEN_PATHS.__contains__, services, error_responses.respond_with_error
    )
    application.add_middleware(HeadLimit, error_responses.respond_with_error)
    application.add_middleware(Audit, operations)
    application.add_middleware(RequestLog, metrics=services.metrics)
    error_responses.install_error_handlers(application)
    application.router.routes.extend(_routes())
    _add_document_route(application)
    return application


def _add_document_route(application: FastAPI) -> None:
    """Serve the OpenAPI document, encoded once."""
    encoded = cache(lambda: json.dumps(application.openapi()).encode())
    flights: SingleFlight[None, bytes] = SingleFlight()

    async def get_document(_: Request) -> Response:
        # Building takes half a second, which must not stop the event loop: clients need no key.
        document = await flights.call(None, encoded)
        return Response(document, media_type="application/json")

    application.add_route("/openapi.json", get_document, include_in_schema=False)


def openapi_document() -> dict[str, Any]:
    """The OpenAPI document of all routes, without services."""
    application = FastAPI(title=TITLE, version=VERSION, description=DESCRIPTION, openapi_tags=TAGS)
    application.router.routes.extend(_routes())
    return describe(application)


def _routes() -> Iterator[BaseRoute]:
    """All routes, which have no state: all applications of a process share them.

    In one list: FastAPI tries the routes of an included router twice for each request.
    """
    for module in ROUTES:
        yield from module.router.routes
