"""Stores which events of which webhooks wait for a retry, for owners to see."""

import asyncio
import logging
import time
from functools import partial
from typing import Final, NoReturn

from app.domain.live_backlog import LiveBacklog
from app.live.queue_context import RetryingQueue
from app.process import on_own_thread, until_next_tick
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

WRITE_S: Final = 1.0
"""How often backlogs are stored, if they have changed."""

REPEAT_S: Final = 30.0
"""How often one that has not changed is stored: well below `CURRENT_MS`."""

WEBHOOKS_PER_WRITE: Final = 500
"""More than that wait for the next write: a write takes some tens of milliseconds."""

REST: Final = 9
"""The next write waits at least this many times as long as the last one took."""


class BacklogWriter:
    """Stores the backlogs of the queues in `retrying`, and removes queues without one.

    A failed write is replaced by the next one. For one event loop.
    """

    def __init__(self, store: Store, origin: str, retrying: set[RetryingQueue]) -> None:
        self._store = store
        self._origin = origin
        self._retrying = retrying
        self._stored: dict[str, tuple[LiveBacklog, float]] = {}
        """By webhook, the backlog in the database, and when it was stored."""

    async def run(self) -> NoReturn:
        """Store backlogs until cancelled."""
        took_s = 0.0
        while True:
            await asyncio.sleep(max(until_next_tick(WRITE_S), REST * took_s))
            began_s = time.monotonic()
            changes = self._changes(began_s)
            if changes:
                await self._write(changes, began_s)
            took_s = time.monotonic() - began_s

    def _changes(self, now_s: float) -> dict[str, LiveBacklog | None]:
        current: dict[str, LiveBacklog] = {}
        for queue in tuple(self._retrying):
            backlog = queue.backlog()
            if backlog is None:
                self._retrying.discard(queue)
            else:
                current[queue.webhook_id] = backlog
        changes: dict[str, LiveBacklog | None] = dict.fromkeys(self._stored.keys() - current.keys())
        for webhook_id, backlog in current.items():
            stored, stored_s = self._stored.get(webhook_id, (None, 0.0))
            if len(changes) < WEBHOOKS_PER_WRITE and (
                backlog != stored or now_s - stored_s >= REPEAT_S
            ):
                changes[webhook_id] = backlog
        return changes

    async def _write(self, changes: dict[str, LiveBacklog | None], now_s: float) -> None:
        record = partial(self._store.record_live_backlogs, changes, origin=self._origin)
        try:
            await on_own_thread(record)
        except StoreUnavailable as error:
            _log.warning("live-backlogs-not-stored", extra={"reason": str(error)})
            return
        for webhook_id, backlog in changes.items():
            if backlog is None:
                del self._stored[webhook_id]
            else:
                self._stored[webhook_id] = backlog, now_s
