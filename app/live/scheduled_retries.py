"""Stores the scheduled retries of events whose live attempts have failed.

An event stays unsettled until its retry is stored, so a crash loses none: then the next process
attempts the event again. Events that are delivered live cost nothing here.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Collection
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, NoReturn

from app.domain.deliveries import DeliveryPlace
from app.domain.delivery import Rejected, Unreachable
from app.domain.handovers import KEPT_MS
from app.domain.model import Webhook
from app.domain.scheduled_retries import (
    COPIES_MAX,
    LIMIT_REASON,
    NewScheduledRetry,
    RetrySchedule,
    scheduled_pause_s,
)
from app.live.delivery import LiveDelivery
from app.live.metrics import LiveMetrics
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

_RETRY_S: Final = 1.0

_READ_S_MAX: Final = 2.0
"""How long the assignment of partitions waits for the database."""

_ROWS_PER_WRITE_MAX: Final = 100
"""So many rows are written in some ten milliseconds."""


class _PendingRetry(NamedTuple):
    delivery: LiveDelivery
    pause_s: float
    stored: Callable[[bool], None]

    @property
    def copies(self) -> tuple[int, ...]:
        """The offsets of the copies that were read so far."""
        here = self.delivery.partition
        offsets = (event.offset for where, event in self.delivery.copies if where is here)
        return tuple(islice(offsets, COPIES_MAX))

    def new(self, origin: str) -> NewScheduledRetry:
        """What to store."""
        delivery, event = self.delivery, self.delivery.event
        return NewScheduledRetry(
            delivery.webhook_id,
            DeliveryPlace(origin, delivery.partition.partition, event.offset),
            delivery.event_id,
            event.event_type,
            event.timestamp_ms,
            self.pause_s,
            delivery.attempts,
            self.copies,
        )


class ScheduledRetries:
    """The scheduled retries of one live process. For one event loop.

    Without the database, they are repeated until they are stored.
    """

    def __init__(
        self, store: Store, origin: str, schedule: RetrySchedule, metrics: LiveMetrics
    ) -> None:
        self.schedule = schedule
        """The operator's, which webhooks without their own have."""
        self._store = store
        self._origin = origin
        self._metrics = metrics
        self._pending: list[_PendingRetry] = []
        self._has_pending = asyncio.Event()

    async def read(self, partitions: Collection[int]) -> frozenset[tuple[int, int]]:
        """Partition and offset of events that need no live attempts any more.

        None after a short time without an answer: then some may arrive twice.
        """
        try:
            async with asyncio.timeout(_READ_S_MAX):
                return await asyncio.to_thread(
                    self._store.recently_scheduled, self._origin, partitions, KEPT_MS
                )
        except (TimeoutError, StoreUnavailable) as error:
            _log.warning("retries-not-read", extra={"reason": str(error)})
            return frozenset()

    def pause_s(self, webhook: Webhook, outcome: Rejected | Unreachable) -> float | None:
        """The pause before the first scheduled retry after the last live attempt; None without."""
        scheduled_s = self.schedule.of_webhook(webhook).scheduled_s
        jitter = random.random()  # noqa: S311  spreads load, guards nothing
        return scheduled_pause_s(scheduled_s, 0, outcome, jitter)

    def add(
        self, delivery: LiveDelivery, pause_s: float, reason: str, stored: Callable[[str], None]
    ) -> None:
        """Store the first scheduled retry of a delivery, which counts as in flight until then.

        `stored` is called after that, with `reason` or why it was not stored: too many events of
        the webhook wait.
        """
        delivery.begin_request()
        finish = partial(self._finish, delivery, reason, stored)
        self._pending.append(_PendingRetry(delivery, pause_s, finish))
        self._has_pending.set()

    def _finish(
        self, delivery: LiveDelivery, reason: str, stored: Callable[[str], None], is_stored: bool
    ) -> None:
        delivery.end_request()
        delivery.is_scheduled = is_stored
        if is_stored:
            self._metrics.scheduled_retries.inc()
        stored(reason if is_stored else f"{reason}; {LIMIT_REASON}")

    async def run(self) -> NoReturn:
        """Store them until cancelled."""
        while True:
            await self._has_pending.wait()
            self._has_pending.clear()
            while self._pending:
                batch = self._pending[:_ROWS_PER_WRITE_MAX]
                self._pending[: len(batch)] = await self._write(batch)

    async def _write(self, batch: list[_PendingRetry]) -> list[_PendingRetry]:
        """Store retries; return those that have to be stored again."""
        new = [each.new(self._origin) for each in batch]
        try:
            results = await asyncio.to_thread(self._store.add_scheduled_retries, new)
        except StoreUnavailable as error:
            _log.warning("retries-not-stored", extra={"reason": str(error)})
            await asyncio.sleep(_RETRY_S)
            return batch
        incomplete = []
        for each, written, is_stored in zip(batch, new, results, strict=True):
            if is_stored and each.copies != written.copies:
                # Copies were read meanwhile.
                incomplete.append(each)
            else:
                each.stored(is_stored)
        return incomplete
