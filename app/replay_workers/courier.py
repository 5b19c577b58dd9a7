"""Carries events to the receiver, one courier for each request in flight."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from app.log.event import LoggedEvent
from app.replay.checkpointing import DeliveryLedger, Entry
from app.replay.delivery import Delivered, Outcome, Refused, Unreachable, Withheld
from app.replay.health import GIVEN_UP_IN_A_ROW_MAX, Health, ReceiverHealth
from app.replay.model import Failure, Webhook
from app.replay.retry import GONE, GiveUp, RetryPolicy
from app.replay.windows import format_time
from app.replay_workers.errors import ReplayRefused
from app.replay_workers.lease_keeper import LeaseKeeper
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender

QUEUE_MAX: Final = 256
"""Events read and not yet with a courier: enough that none waits for the reader."""


class Parcel(NamedTuple):
    """An event to deliver, and its place in the books."""

    entry: Entry
    event: LoggedEvent


@dataclass(slots=True)
class Route:
    """What the couriers of one replay share."""

    replay_id: str
    webhook: Webhook
    sender: WebhookSender
    policy: RetryPolicy
    lease: LeaseKeeper
    ledger: DeliveryLedger
    health: ReceiverHealth
    parcels: "asyncio.Queue[Parcel | None]" = field(
        default_factory=lambda: asyncio.Queue(QUEUE_MAX)
    )
    probe_turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Who holds it asks, alone, whether a receiver that is down is back."""


class Courier:
    """Delivers one event at a time, from its first attempt to its last."""

    def __init__(self, route: Route) -> None:
        self._route = route
        self._is_posting = False
        self._is_stopping = False
        self._task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Deliver parcels until there is a None in their place, or until stopped.

        Raises:
            ReplayRefused: the receiver makes it pointless to go on.
        """
        self._task = asyncio.current_task()
        while not self._is_stopping and (parcel := await self._route.parcels.get()):
            await self._deliver(*parcel)

    def stop(self) -> None:
        """Take no more attempts; a request under way is not cut off."""
        self._is_stopping = True
        if not self._is_posting:
            self.cut_off()

    def cut_off(self) -> None:
        """Stop at once."""
        if self._task is not None:
            self._task.cancel()

    async def _deliver(self, entry: Entry, event: LoggedEvent) -> None:
        route, attempts = self._route, 0
        while True:
            outcome = await self._attempt(event)
            if isinstance(outcome, Delivered):
                route.ledger.deliver(entry)
                return
            wait_s = 0.0
            if not isinstance(outcome, Withheld):
                attempts += 1
                verdict = route.policy.next(outcome, attempts, random.random())  # noqa: S311
                if isinstance(verdict, GiveUp) or route.health.state is Health.WRITTEN_OFF:
                    self._give_up(entry, event, attempts, outcome)
                    return
                wait_s = verdict.seconds
            if self._is_stopping:
                return
            await asyncio.sleep(wait_s)

    async def _attempt(self, event: LoggedEvent) -> Outcome:
        """Send an event once; while the receiver is down, when it is its turn to be the probe."""
        route = self._route
        while route.health.state is Health.DOWN:
            async with route.probe_turn:
                # Whoever had the turn before may have found it well again.
                if route.health.state is Health.DOWN:
                    await asyncio.sleep(route.health.probe_wait_s(time.monotonic()))
                    return await self._post(event)
        return await self._post(event)

    async def _post(self, event: LoggedEvent) -> Outcome:
        route = self._route
        await route.lease.until_held()
        webhook, started_s = route.webhook, time.monotonic()
        now_s = time.time()
        secrets = webhook.secrets_at(int(now_s * 1000))
        headers = webhook_headers(secrets, event.event_id, int(now_s), event.value, route.replay_id)
        self._is_posting = True
        # The lease is looked at once more when the request is about to leave: the process may
        # have been stopped, and the replay taken over, while a connection was made.
        outcome = await route.sender.send(
            webhook.url, headers, event.value, may_start=route.lease.is_held
        )
        self._is_posting = False
        if type(outcome) is Delivered:
            route.health.took_one()
        elif isinstance(outcome, Refused | Unreachable):
            jitter = random.random()  # noqa: S311  spreads load, guards nothing
            route.health.failed(outcome, started_s, time.monotonic(), jitter)
        return outcome

    def _give_up(
        self, entry: Entry, event: LoggedEvent, attempts: int, outcome: Refused | Unreachable
    ) -> None:
        status = outcome.status if isinstance(outcome, Refused) else None
        failure = Failure(event.offset, event.event_id, attempts, status, outcome.reason)
        self._route.ledger.fail(entry, failure)
        self._route.health.gave_up_one()
        if status == GONE:
            # Standard Webhooks: a receiver that answers so is not to be sent anything again.
            raise ReplayRefused(f"the receiver wants no more events: {outcome.reason}")
        if self._route.health.is_beyond_hope:
            raise ReplayRefused(
                f"the receiver took none of {GIVEN_UP_IN_A_ROW_MAX} events in a row, the last "
                f"of {format_time(event.timestamp_ms)}: {outcome.reason}"
            )
