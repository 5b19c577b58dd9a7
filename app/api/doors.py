"""What the routes reach the world through."""

import time
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from app.api.metrics import Metrics
from app.config import Settings
from app.log.history import LogHistory
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
    guard: Guard
    metrics: Metrics


def now_ms() -> int:
    """The present, in milliseconds since 1970, UTC."""
    return time.time_ns() // 1_000_000


async def _doors(request: Request) -> Doors:
    return cast("Doors", request.app.state.doors)


DoorsDependency = Annotated[Doors, Depends(_doors)]
