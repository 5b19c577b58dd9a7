"""Carries events to the receiver, one courier for each request in flight."""

import asyncio
import random
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected, Unreachable
from app.domain.endpoint_health import (
    CONSECUTIVE_FAILED_EVENTS_MAX,
    HealthState,
    ProbedEndpointHealth,
)
from app.domain.model import Failure
from app.domain.rates import RateLimiter
from app.domain.retry import GONE, GiveUp, RetryPolicy
from app.domain.windows import format_time
from app.log.event import LoggedEvent
from app.replay_workers.backlog import Backlog, Consignment
from app.replay_workers.errors import ReceiverGone, ReplayRefused
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.shipment import Shipment, batch, single
from app.replay_workers.target import Target
from app.webhooks.metrics import DeliveryMetrics
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender

CONTENT_TOO_LARGE: Final = 413

_SLEEP_S_MIN: Final = 0.001
"""A shorter wait costs more than it spares: the next one makes up for it."""


@dataclass(slots=True)
class Route:
    """What the couriers of one replay share.

    `events_max` is how many events may go together: fewer than before once the receiver has
    called a request too large.
    """

    replay_id: str
    target: Target
    sender: WebhookSender
    policy: RetryPolicy
    lease: LeaseKeeper
    backlog: Backlog
    health: ProbedEndpointHealth
    pace: RateLimiter
    metrics: DeliveryMetrics
    is_batched: bool = False
    events_max: int = 1
    probe_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who holds it asks, alone, whether a receiver that is down is back."""

    def shipment(self, events: Sequence[LoggedEvent]) -> Shipment:
        """The request that brings the events."""
        return batch(events) if self.is_batched else single(events[0])


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A shipment that is sent no more: after so many attempts, of which this was the last."""

    attempts: int
    outcome: Rejected | Unreachable
    duration_ms: int | None

    @property
    def status(self) -> int | None:
        """The last HTTP answer, if there was one."""
        return self.outcome.status if isinstance(self.outcome, Rejected) else None

    @property
    def response(self) -> str | None:
        """How the body of the last answer began, if there was one."""
        return self.outcome.response if isinstance(self.outcome, Rejected) else None


class _Stopped(Exception):
    """The courier was told to stop with a shipment in its hands."""


class Courier:
    """Delivers one parcel at a time, from its first attempt to its last."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._is_posting = False
        self._is_stopping = False
        self._took_s = 0.0
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Deliver parcels until there are no more, or until stopped.

        Raises:
            ReplayRefused: the receiver makes it pointless to go on.
        """
        self._task = asyncio.current_task()
        with suppress(_Stopped):
            while not self._is_stopping and (consignment := await self._route.backlog.next()):
                await self._deliver(consignment)

    def stop(self) -> None:
        """Take no more attempts; a request under way is not cut off."""
        self._is_stopping = True
        if not self._is_posting:
            self.cut_off()

    def cut_off(self) -> None:
        """Stop at once."""
        if self._task is not None:
            self._task.cancel()

    async def _deliver(self, consignment: Consignment) -> None:
        """Deliver a parcel, in parts where it is too large as a whole."""
        route, delivered, failures = self._route, dict[int, int](), list[Failure]()
        parts = deque([consignment.parcel.events])
        while parts:
            events = parts.popleft()
            if len(events) > route.events_max:
                parts.extendleft(reversed(_halves(events)))
                continue
            end = await self._persist(route.shipment(events))
            if isinstance(end, Delivered):
                delivered[end.status] = delivered.get(end.status, 0) + len(events)
                continue
            given_up = end
            if given_up.status == CONTENT_TOO_LARGE and len(events) > 1:
                route.events_max = min(route.events_max, len(events) // 2)
                parts.appendleft(events)
                continue
            failures += _failures(events, given_up)
            route.health.record_failed_events(len(events))
            if refusal := self._pointless(events, given_up):
                for unsent in parts:
                    failures += _failures(unsent, replace(given_up, attempts=0, duration_ms=None))
                route.backlog.settle(consignment, delivered, failures)
                raise refusal
        route.backlog.settle(consignment, delivered, failures)

    async def _persist(self, shipment: Shipment) -> Delivered | GivenUp:
        """Send a shipment until it is taken, or given up."""
        route, attempts = self._route, 0
        while True:
            outcome = await self._attempt(shipment)
            if isinstance(outcome, Delivered):
                return outcome
            wait_s = 0.0
            if not isinstance(outcome, NotSent):
                attempts += 1
                verdict = route.policy.after_failure(outcome, attempts, random.random())  # noqa: S311
                if isinstance(verdict, GiveUp) or route.health.state is HealthState.DOWN:
                    return GivenUp(attempts, outcome, round(self._took_s * 1_000))
                wait_s = verdict.seconds
            if self._is_stopping:
                raise _Stopped
            await asyncio.sleep(wait_s)

    async def _attempt(self, shipment: Shipment) -> AttemptOutcome:
        """Send a shipment once; while the receiver is down, when it is its turn to be the probe."""
        route = self._route
        while True:
            if route.health.is_failing:
                async with route.probe_turn:
                    # Whoever had the turn before may have found it well again.
                    if route.health.is_failing:
                        await asyncio.sleep(route.health.probe_wait_s(time.monotonic()))
                        await self._keep_pace(shipment)
                        return await self._post(shipment)
            await self._keep_pace(shipment)
            # It may have gone down meanwhile.
            if not route.health.is_failing:
                return await self._post(shipment)

    async def _keep_pace(self, shipment: Shipment) -> None:
        wait_s = self._route.pace.reserve(len(shipment.events), time.monotonic())
        if wait_s > _SLEEP_S_MIN:
            await asyncio.sleep(wait_s)

    async def _post(self, shipment: Shipment) -> AttemptOutcome:
        route = self._route
        await route.lease.until_held()
        started_s = time.monotonic()
        url, headers = route.target.url, self._headers(shipment)
        self._is_posting = True
        # The lease is looked at once more when the request is about to leave: the process may
        # have been stopped, and the replay taken over, while a connection was made.
        outcome = await route.sender.send(url, headers, shipment.body, may_start=self._may_start)
        self._is_posting = False
        self._note(outcome, started_s, len(shipment.body))
        return outcome

    def _may_start(self) -> bool:
        return self._route.lease.is_held() and not self._is_stopping

    def _headers(self, shipment: Shipment) -> dict[str, str]:
        now_ms = time.time_ns() // 1_000_000
        return webhook_headers(
            self._route.target.secrets(now_ms),
            shipment.message_id,
            now_ms // 1_000,
            shipment.body,
            self._route.replay_id,
            extra=shipment.headers,
        )

    def _note(self, outcome: AttemptOutcome, started_s: float, body_bytes: int) -> None:
        health, now_s = self._route.health, time.monotonic()
        self._took_s = now_s - started_s
        self._route.metrics.count(outcome, self._took_s, body_bytes)
        if type(outcome) is Delivered:
            health.record_success()
        elif isinstance(outcome, Rejected | Unreachable):
            jitter = random.random()  # noqa: S311  spreads load, guards nothing
            health.record_failure(outcome, started_s, now_s, jitter)

    def _pointless(self, events: Sequence[LoggedEvent], given_up: GivenUp) -> ReplayRefused | None:
        """Why there is no point in going on, if there is none."""
        reason = given_up.outcome.reason
        if given_up.status == GONE:
            # Standard Webhooks: a receiver that answers so is not to be sent anything again.
            return ReceiverGone(f"the receiver wants no more events: {reason}")
        if self._route.health.exceeds_failure_limit:
            return ReplayRefused(
                f"stopped after {CONSECUTIVE_FAILED_EVENTS_MAX:,} consecutive failures, the last "
                f"event of {format_time(events[-1].timestamp_ms)}: {reason}"
            )
        return None


def _halves(events: list[LoggedEvent]) -> tuple[list[LoggedEvent], list[LoggedEvent]]:
    middle = (len(events) + 1) // 2
    return events[:middle], events[middle:]


def _failures(events: Sequence[LoggedEvent], given_up: GivenUp) -> list[Failure]:
    end = (given_up.attempts, given_up.status, given_up.outcome.reason)
    last = (given_up.duration_ms, given_up.response)
    return [Failure(event.offset, event.event_id, *end, *last) for event in events]
