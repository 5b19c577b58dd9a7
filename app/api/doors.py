"""What the routes reach the world through."""

import time
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from app.api.ensemble_watch import EnsembleWatch
from app.api.job_watch import JobWatch
from app.api.metrics import Metrics
from app.api.places import Places
from app.api.progress_watch import ProgressWatch
from app.api.proofs import Proofs
from app.api.readiness import Readiness
from app.config import Settings
from app.log.browser import LogBrowser
from app.log.estimate import Estimator
from app.log.history import LogHistory
from app.log.inspection.inspector import LogInspector
from app.log.publisher import EventPublisher
from app.store import Store
from app.webhooks.guard import Guard


@dataclass(frozen=True, slots=True)
class Doors:
    """Everything a route may use; opened and closed by whoever composes the application."""

    settings: Settings
    store: Store
    publisher: EventPublisher
    history: LogHistory
    outcomes: LogHistory
    """Looks into the log of live deliveries."""

    guard: Guard
    proofs: Proofs
    jobs: JobWatch
    readiness: Readiness
    watch: ProgressWatch
    inspector: LogInspector
    browser: LogBrowser
    """Look at the log for operators."""

    ensemble: EnsembleWatch

    estimator: Estimator
    estimates: Places
    """For what the estimator is asked for."""

    metrics: Metrics


def now_ms() -> int:
    """The present, in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


async def _doors(request: Request) -> Doors:
    return cast("Doors", request.app.state.doors)


DoorsDependency = Annotated[Doors, Depends(_doors)]
