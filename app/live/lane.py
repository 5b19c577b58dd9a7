"""The way to one webhook: a bounded queue, its couriers, and what its receiver's answers mean.

An event waits in the lane from when it is read until it is settled, also between its attempts. What
does not fit is left to replays, unless the receiver is taking events fast: then the partition is
held until there is room. So one receiver that is slow or down delays nobody, and a backlog is
worked off at the pace of those that take it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from app.domain.delivery import AttemptOutcome, Delivered, LiveOutcome, Rejected, Unreachable
from app.domain.model import Webhook, WebhookStatus
from app.domain.rates import ThroughputEstimate
from app.domain.retry import GONE, is_permanent
from app.live.failure_run import FailureRun
from app.live.metrics import LiveMetrics
from app.live.parcel import Parcel, Share
from app.live.routing import RoutingTable
from app.live.standing import Standing
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender

LANE_BYTES_MAX: Final = 16 * 2**20
ALL_BYTES_MAX: Final = 128 * 2**20
"""Bytes of events that wait, for one webhook and for all of them."""

JUDGED_AFTER_S: Final = 1.0
JUDGED_AT_LAST_S: Final = 5.0
"""How long a full lane holds its partition before its pace decides whether it may go on to; the
longer time while this process has so much to do that no receiver could be fast."""

_TOO_MANY: Final = "too many events wait for this webhook"

RETRY_AFTER_S_MAX: Final = 600.0
"""The longest quiet that a receiver may ask for."""


class Desk(Protocol):
    """Where a lane says what became of its events, and asks for more or less of them."""

    def settle(
        self, parcel: Parcel, outcome: LiveOutcome, status: int | None, reason: str | None
    ) -> None:
        """Book that a parcel is done with."""

    def crowd(self, share: Share, webhook_id: str) -> None:
        """Read no more of a partition for the sake of this webhook."""

    def clear(self, share: Share, webhook_id: str) -> None:
        """Read on, unless others have it held."""


@dataclass(slots=True)
class Route:
    """What all lanes share."""

    table: RoutingTable
    sender: WebhookSender
    standing: Standing
    metrics: LiveMetrics
    desk: Desk
    spawn: Callable[[Coroutine[Any, Any, None]], object]
    delays_s: tuple[float, ...]
    in_flight_max: int
    queue_max: int
    disable_after_failures: int
    disable_after_s: float
    bytes_waiting: int = 0
    is_busy: bool = False
    is_stopping: bool = False


class Lane:
    """The events of one webhook that are not settled. Used on one event loop."""

    def __init__(self, webhook_id: str, route: Route) -> None:
        self.webhook_id = webhook_id
        self._route = route
        self._parcels: set[Parcel] = set()
        self._ready: deque[Parcel] = deque()
        self._bytes = 0
        self._couriers = 0
        self._pace = ThroughputEstimate()
        self._is_slow = False
        self._crowding: Share | None = None
        self._crowded_s = 0.0
        self._quiet_until_s = 0.0
        self._is_closed = False
        self._failures = FailureRun(
            route.standing,
            disable_after_failures=route.disable_after_failures,
            disable_after_s=route.disable_after_s,
        )

    def __len__(self) -> int:
        return len(self._parcels)

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing waits in it, and nothing is known that must be remembered."""
        return not self._parcels and self._failures.is_over and not self._is_closed

    def offer(self, parcel: Parcel) -> None:
        """Take a parcel, or leave it to replays."""
        if self._exceeds_bounds(len(self._parcels) + 1):
            if not self._is_worth_waiting_for():
                self._leave(parcel)
                return
            self._crowd(parcel.share)
        self._parcels.add(parcel)
        self._count_bytes(len(parcel.event.value))
        self._make_ready_after(self._route.delays_s[0], parcel)

    def withdraw(self, share: Share) -> None:
        """Begin no more attempts for a partition that another process will have."""
        self._ready = deque(each for each in self._ready if each.share is not share)

    def drop(self, share: Share) -> None:
        """Forget the parcels of a partition that another process has now."""
        for parcel in [each for each in self._parcels if each.share is share]:
            self._forget(parcel)
        if self._crowding is share:
            self._crowding = None

    def _forget(self, parcel: Parcel) -> None:
        self._parcels.discard(parcel)
        self._count_bytes(-len(parcel.event.value))

    def _count_bytes(self, count: int) -> None:
        self._bytes += count
        self._route.bytes_waiting += count

    def _finish(
        self, parcel: Parcel, outcome: LiveOutcome, status: int | None, reason: str | None
    ) -> None:
        self._forget(parcel)
        self._route.desk.settle(parcel, outcome, status, reason)
        if self._crowding is not None and self._has_room_again():
            self._clear()

    def _leave(self, parcel: Parcel) -> None:
        self._route.desk.settle(parcel, LiveOutcome.SKIPPED, None, _TOO_MANY)

    def _exceeds_bounds(self, events: int) -> bool:
        """Whether so many would be too many; one is not, whatever its size."""
        return events > 1 and (
            events > self._route.queue_max
            or self._bytes > LANE_BYTES_MAX
            or self._route.bytes_waiting > ALL_BYTES_MAX
        )

    def _has_room_again(self) -> bool:
        return (
            len(self._parcels) <= self._route.queue_max // 2 and self._bytes <= LANE_BYTES_MAX // 2
        )

    def _is_worth_waiting_for(self) -> bool:
        if self._failures.is_down or self._is_closed:
            return False
        if self._pace.is_fast(time.monotonic()):
            self._is_slow = False
        return not self._is_slow

    def _crowd(self, share: Share) -> None:
        if self._crowding is None:
            self._crowding = share
            self._crowded_s = time.monotonic()
            self._route.desk.crowd(share, self.webhook_id)
            asyncio.get_running_loop().call_later(JUDGED_AFTER_S, self._judge, share)

    def _clear(self) -> None:
        if self._crowding is not None:
            share, self._crowding = self._crowding, None
            self._route.desk.clear(share, self.webhook_id)

    def _judge(self, share: Share) -> None:
        """Go on holding the partition for a receiver that is fast; else leave what is too much."""
        if self._crowding is not share:
            return
        now_s = time.monotonic()
        is_early = self._route.is_busy and now_s - self._crowded_s < JUDGED_AT_LAST_S
        if is_early or self._pace.is_fast(now_s):
            asyncio.get_running_loop().call_later(JUDGED_AFTER_S, self._judge, share)
            return
        self._is_slow = True
        while self._ready and self._exceeds_bounds(len(self._parcels)):
            parcel = self._ready.pop()
            self._forget(parcel)
            self._leave(parcel)
        self._clear()

    def _make_ready_after(self, delay_s: float, parcel: Parcel) -> None:
        if delay_s:
            asyncio.get_running_loop().call_later(delay_s, self._make_ready, parcel)
        else:
            self._ready.append(parcel)
            self._call_couriers(1)

    def _make_ready(self, parcel: Parcel) -> None:
        """Put a parcel whose time has come before those that are younger."""
        if parcel in self._parcels and parcel.share.is_ours():
            self._ready.appendleft(parcel)
            self._call_couriers(1)

    def _call_couriers(self, count: int) -> None:
        """Call so many more, within bounds; each goes on until nothing is ready."""
        for _ in range(min(count, self._route.in_flight_max - self._couriers)):
            self._couriers += 1
            self._route.spawn(self._carry())

    async def _carry(self) -> None:
        while (webhook := await self._receiver()) is not None:
            # It may have been taken by another while the webhook was looked at.
            if self._ready:
                await self._attempt(self._ready.popleft(), webhook)
        self._couriers -= 1

    async def _receiver(self) -> Webhook | None:
        """The webhook, as long as something is ready for it and it may be sent to."""
        while self._ready and not self._route.is_stopping:
            wait_s = self._quiet_until_s - time.monotonic()
            if wait_s > 0:
                loop = asyncio.get_running_loop()
                loop.call_later(wait_s, lambda: self._call_couriers(len(self._ready)))
                return None
            if webhook := self._enabled():
                return webhook
            await self._refuse()
        return None

    def _enabled(self) -> Webhook | None:
        webhook = self._route.table.webhook(self.webhook_id)
        is_enabled = webhook is not None and webhook.status is WebhookStatus.ENABLED
        return webhook if is_enabled and not self._is_closed else None

    async def _refuse(self) -> None:
        """Settle what is ready as not sent, if the webhook is still not enabled by a fresh copy."""
        await self._route.table.refreshed()
        if self._enabled():
            return
        webhook = self._route.table.webhook(self.webhook_id)
        reason = "the webhook is deleted" if webhook is None else f"the webhook is {webhook.status}"
        while self._ready:
            self._finish(self._ready.popleft(), LiveOutcome.DISABLED, None, reason)

    async def _attempt(self, parcel: Parcel, webhook: Webhook) -> None:
        route, event, share = self._route, parcel.event, parcel.share
        now_s = time.time()
        secrets = webhook.secrets_at(int(now_s * 1_000))
        headers = webhook_headers(secrets, parcel.event_id, int(now_s), event.value)
        share.posting += 1
        began_s = time.monotonic()
        outcome = await route.sender.send(
            webhook.url, headers, event.value, may_start=share.is_ours
        )
        ended_s = time.monotonic()
        share.posting -= 1
        route.metrics.attempts.count(outcome, ended_s - began_s, len(event.value))
        parcel.took_ms = 1_000 * (ended_s - began_s)
        if parcel in self._parcels:
            self._take_answer(parcel, webhook, outcome, ended_s)

    def _take_answer(
        self, parcel: Parcel, webhook: Webhook, outcome: AttemptOutcome, now_s: float
    ) -> None:
        parcel.attempts += 1
        if type(outcome) is Delivered:
            self._pace.record_delivery(now_s)
            self._failures.took_one(webhook)
            self._route.metrics.count_delivery(parcel.event.timestamp_ms, now_s - parcel.read_s)
            self._finish(parcel, LiveOutcome.DELIVERED, outcome.status, None)
        elif isinstance(outcome, Rejected | Unreachable):
            self._failed(parcel, webhook, outcome, now_s)

    def _failed(
        self, parcel: Parcel, webhook: Webhook, outcome: Rejected | Unreachable, now_s: float
    ) -> None:
        now_ms = time.time_ns() // 1_000_000
        self._failures.attempt_failed(webhook, now_ms)
        status, wait_s, is_hopeless = None, 0.0, False
        if isinstance(outcome, Rejected):
            status, is_hopeless = outcome.status, is_permanent(outcome)
            wait_s = min(outcome.retry_after_s or 0.0, RETRY_AFTER_S_MAX)
            self._quiet_until_s = max(self._quiet_until_s, now_s + wait_s)
        delays_s = self._route.delays_s
        if parcel.attempts < len(delays_s) and not is_hopeless:
            self._make_ready_after(max(delays_s[parcel.attempts], wait_s), parcel)
            return
        self._finish(parcel, LiveOutcome.FAILED, status, outcome.reason)
        if not self._is_closed:
            self._is_closed = self._is_at_its_end(webhook, status, outcome.reason, now_ms)

    def _is_at_its_end(
        self, webhook: Webhook, status: int | None, reason: str, now_ms: int
    ) -> bool:
        """Whether the webhook is to be disabled; then that is under way, and nothing more sent."""
        if status == GONE:
            # Standard Webhooks: a receiver that answers so is not to be sent anything again.
            why = f"the receiver wants no more events: {reason}"
            self._route.standing.disable(webhook, why, self._open)
            return True
        return self._failures.event_failed(webhook, reason, now_ms, self._open)

    def _open(self) -> None:
        """Go by the webhook's status again: the table knows by now that it is disabled."""
        self._is_closed = False
