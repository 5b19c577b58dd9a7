"""The application: routes, limits and refusals, around doors that somebody else opened."""

from fastapi import FastAPI

from app.api import events, operations, refusals, replays, webhooks
from app.api.doors import Doors
from app.api.limits import BodyLimit
from app.api.metrics import Metrics
from app.api.openapi import ANY_REFUSAL, DESCRIPTION, TAGS, TITLE, VERSION, describe
from app.api.request_log import RequestLog
from app.config import Settings
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.store import Store
from app.webhooks.guard import Guard


def create_app(
    settings: Settings,
    store: Store,
    publisher: EventPublisher,
    history: LogHistory,
    guard: Guard,
) -> FastAPI:
    """The API on these doors; it neither opens nor closes any of them."""
    metrics = Metrics()
    application = FastAPI(
        title=TITLE,
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        responses=ANY_REFUSAL,
        redirect_slashes=False,
        # Its pages would load their scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
    )
    application.state.doors = Doors(settings, store, publisher, history, guard, metrics)
    application.add_middleware(BodyLimit, events_bytes_max=settings.request_bytes_max)
    # Added last, so outermost: it sees every answer.
    application.add_middleware(RequestLog, metrics=metrics)
    refusals.install(application)
    for routes in (webhooks, replays, events, operations):
        application.include_router(routes.router)
    application.openapi = lambda: describe(application)  # type: ignore[method-assign]
    return application
