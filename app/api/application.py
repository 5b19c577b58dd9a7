"""The application: routes, limits and refusals, around doors that somebody else opened."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.routing import BaseRoute

from app.api import (
    events,
    log_view,
    operations,
    pipeline,
    processes,
    refusals,
    replay_progress,
    replays,
    restorations,
    rules,
    test_delivery,
    twitter,
    webhook_statistics,
    webhooks,
)
from app.api.audit import Audit
from app.api.doors import Doors
from app.api.dry_run import ESTIMATES_PER_ACCOUNT_MAX
from app.api.ensemble_watch import EnsembleWatch
from app.api.gate import Gate
from app.api.head_limit import HeadLimit
from app.api.job_watch import JobWatch
from app.api.keyring import Keyring
from app.api.limits import BodyLimit
from app.api.metrics import Metrics
from app.api.openapi import ANY_REFUSAL, DESCRIPTION, TAGS, TITLE, VERSION, describe
from app.api.operation_table import OperationTable
from app.api.places import Places
from app.api.progress_watch import ProgressWatch
from app.api.proofs import Proofs
from app.api.readiness import Readiness
from app.api.request_log import RequestLog
from app.config import Settings
from app.log.browser import LogBrowser
from app.log.estimate import Estimator
from app.log.history import LogHistory
from app.log.inspection.inspector import LogInspector
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_OUTCOMES
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender

ROUTES: Final = (
    webhooks,
    webhook_statistics,
    test_delivery,
    rules,
    replays,
    replay_progress,
    twitter,
    events,
    restorations,
    pipeline,
    processes,
    log_view,
    operations,
)


def create_app(
    settings: Settings,
    store: Store,
    publisher: EventPublisher,
    history: LogHistory,
    guard: Guard,
    sender: WebhookSender,
    metrics: Metrics,
) -> FastAPI:
    """The API on these doors; it neither opens nor closes any of them."""
    inspector = LogInspector(settings)
    browser = LogBrowser(settings, inspector.questions)

    @asynccontextmanager
    async def closing_browser(_: FastAPI) -> AsyncIterator[None]:
        yield
        browser.close()

    application = FastAPI(
        lifespan=closing_browser,
        title=TITLE,
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        redirect_slashes=False,
        # Its pages would load their scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    application.state.doors = Doors(
        settings=settings,
        store=store,
        publisher=publisher,
        history=history,
        outcomes=LogHistory(
            settings.bootstrap_servers,
            properties=settings.kafka_properties,
            topic=DELIVERY_OUTCOMES,
        ),
        guard=guard,
        proofs=Proofs(sender, store),
        jobs=JobWatch(store, settings.origin),
        readiness=Readiness(store, history),
        watch=ProgressWatch(store),
        inspector=inspector,
        browser=browser,
        ensemble=EnsembleWatch(settings.zookeeper),
        estimator=Estimator(settings.bootstrap_servers, properties=settings.kafka_properties),
        estimates=Places(ESTIMATES_PER_ACCOUNT_MAX, "of your replays are being estimated already"),
        metrics=metrics,
    )
    # Made once, for the description is open to everybody; after the last route is there.
    application.openapi = cache(lambda: describe(application))  # type: ignore[method-assign]
    table = cache(lambda: OperationTable.of(application.openapi()))
    application.state.operations = table
    application.add_middleware(BodyLimit, events_bytes_max=settings.request_bytes_max)
    # Each is outside of those added before it: the log and the audit see every answer, and nothing
    # of a request is read before the gate.
    application.add_middleware(Gate, Keyring(store.find_key), settings, metrics)
    application.add_middleware(HeadLimit)
    application.add_middleware(Audit, table)
    application.add_middleware(RequestLog, metrics=metrics)
    refusals.install(application)
    application.router.routes.extend(_routes())
    return application


def openapi_document() -> dict[str, Any]:
    """The OpenAPI description of all routes, without a running service."""
    application = FastAPI(title=TITLE, version=VERSION, description=DESCRIPTION, openapi_tags=TAGS)
    application.router.routes.extend(_routes())
    return describe(application)


@cache
def _routes() -> list[BaseRoute]:
    """All routes, which hold no state: every application of a process shares them.

    FastAPI examines the parameters of a route when it is first matched, which takes a third of a
    millisecond for each.
    """
    router = APIRouter(responses=ANY_REFUSAL)
    for module in ROUTES:
        router.include_router(module.router)
    return router.routes
