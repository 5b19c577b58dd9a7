"""The handovers of events to replays, as a live process knows them."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from app.domain.handovers import KEPT_MS, LiveHandover
from app.live.delivery import LiveDelivery
from app.process import until_next_tick
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

POLL_S: Final = 0.5
_REFRESH_S_MAX: Final = 2.0
"""How long the assignment of partitions waits for the database."""


class Handovers:
    """The events that replays send instead of this process. For one event loop.

    While the database is unavailable, it keeps what it knows.
    """

    def __init__(self, store: Store, origin: str) -> None:
        self._store = store
        self._origin = origin
        self._by_webhook: dict[str, dict[str, LiveHandover]] = {}
        self._unacknowledged: dict[str, LiveHandover] = {}
        self._since_ms = 0
        self._version: int | None = None
        """The data version of the database that was read last."""

    def of(self, delivery: LiveDelivery) -> LiveHandover | None:
        """The handover to which a delivery belongs; None if there is none."""
        found = self._by_webhook.get(delivery.webhook_id)
        if found is None:
            return None
        return next((each for each in found.values() if delivery.belongs_to(each)), None)

    async def refresh(self) -> None:
        """Read new handovers.

        Raises:
            StoreUnavailable: the database does not respond.
        """
        version = self._store.database.data_version()
        if version is not None and version == self._version:
            return
        found = await asyncio.to_thread(self._store.handovers, self._since_ms, origin=self._origin)
        self._since_ms = found.as_of_ms
        for handover in found.handovers:
            self._by_webhook.setdefault(handover.webhook_id, {})[handover.replay_id] = handover
            if handover.is_acknowledged:
                self._unacknowledged.pop(handover.replay_id, None)
            else:
                self._unacknowledged[handover.replay_id] = handover
        if found.handovers:
            self._forget_expired(found.as_of_ms)
        self._version = version

    def _forget_expired(self, now_ms: int) -> None:
        for webhook_id, handovers in tuple(self._by_webhook.items()):
            for each in tuple(handovers.values()):
                if each.window.to_ms < now_ms - KEPT_MS:
                    del handovers[each.replay_id]
                    self._unacknowledged.pop(each.replay_id, None)
            if not handovers:
                del self._by_webhook[webhook_id]

    async def try_to_refresh(self) -> None:
        """Read new handovers; return after a short time, also if the database is unavailable."""
        with suppress(TimeoutError, StoreUnavailable):
            async with asyncio.timeout(_REFRESH_S_MAX):
                await self.refresh()

    async def run(self, hand_over: Callable[[LiveHandover], bool]) -> NoReturn:
        """Read handovers until cancelled, and acknowledge those for which `hand_over` is True.

        `hand_over` returns whether this process sends none of the events any more.
        """
        while True:
            try:
                await self.refresh()
                for handover in tuple(self._unacknowledged.values()):
                    if hand_over(handover):
                        await asyncio.to_thread(
                            self._store.acknowledge_handover, handover.replay_id
                        )
                        del self._unacknowledged[handover.replay_id]
            except StoreUnavailable as error:
                _log.debug("handovers-not-read", extra={"reason": str(error)})
            await asyncio.sleep(until_next_tick(POLL_S))
