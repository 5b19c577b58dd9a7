"""Stores which webhooks fail and recover, and starts the replays of those that have recovered."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NoReturn, Protocol

from app.domain.model import Window
from app.domain.recovery import Outage, OutageRecord
from app.domain.retry import RetryPolicy
from app.process import until_next_tick
from app.store import Store, StoreUnavailable

_log: Final = logging.getLogger(__name__)

START_S: Final = 1.0
"""How often due recoveries are looked up: one query of an index."""

CHECK_S: Final = 0.5
"""How often the recoveries of watched webhooks are looked up, if any is watched."""

_SWEEP_S: Final = 60.0
_STARTS_MAX: Final = 100
_RETRY_S: Final = 1.0
_READ_S_MAX: Final = 2.0
"""How long the assignment of partitions waits for the database."""


class RecoveryCheck(Protocol):
    """Receives what the database has of the recoveries of a webhook."""

    def __call__(self, *, is_behind: bool, record: OutageRecord | None) -> None:
        """`is_behind` if one is due or active, or the webhook is failing, as `record` says."""


@dataclass(slots=True)
class _PendingChange:
    """What is not stored of a webhook, and what to call once it is.

    `missed` covers all outages that are over and missed events, `change` is the last one of the
    present outage or the end of one that missed nothing.
    """

    missed: OutageRecord | None = None
    change: Callable[[], None] | None = None
    stored: list[Callable[[], None]] = field(default_factory=list)


class Recoveries:
    """The recoveries of one live process in the database. For one event loop.

    Without the database, changes are repeated until they are stored. Of several changes of an
    outage only the last is stored, which includes the earlier ones.
    """

    def __init__(
        self,
        store: Store,
        origin: str,
        policy: RetryPolicy,
        wake_workers: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`wake_workers` is called with the id of each replay that was created."""
        self._store = store
        self._wake_workers = wake_workers
        self._origin = origin
        self.policy = policy
        """The pauses between probes."""
        self._pending: dict[str, _PendingChange] = {}
        self._watched: dict[str, RecoveryCheck] = {}
        self._has_pending = asyncio.Event()

    async def read(self) -> dict[str, OutageRecord]:
        """The failing webhooks in the database; none after a short time without an answer.

        A webhook that is not known to fail is found to fail again, and its row extended.
        """
        try:
            async with asyncio.timeout(_READ_S_MAX):
                return await asyncio.to_thread(self._store.recoveries, origin=self._origin)
        except (TimeoutError, StoreUnavailable) as error:
            _log.warning("recoveries-not-read", extra={"reason": str(error)})
            return {}

    def save(self, webhook_id: str, outage: Outage, stored: Callable[[], None]) -> None:
        """Store that a webhook fails; `stored` is called after that."""
        record = outage.record

        def finish() -> None:
            outage.record_stored(record.window)
            stored()

        change = partial(self._store.save_recovery, webhook_id, record, origin=self._origin)
        self._add(webhook_id, change, None, finish)

    def finish(self, webhook_id: str, outage: Outage, stored: Callable[[], None]) -> None:
        """Store that the receiver accepts events again; `stored` is called after that."""
        if outage.has_missed:
            self._add(webhook_id, None, outage.record, stored)
        else:
            since_ms = outage.record.since_ms
            drop = partial(self._store.drop_recovery, webhook_id, since_ms, origin=self._origin)
            self._add(webhook_id, drop, None, stored)

    def watch(self, webhook_id: str, check: RecoveryCheck) -> None:
        """Call `check` soon and regularly, with what the database has after all changes so far."""
        self._watched[webhook_id] = check
        self._has_pending.set()

    def unwatch(self, webhook_id: str) -> None:
        """Call its function no more."""
        self._watched.pop(webhook_id, None)

    async def run(self) -> NoReturn:
        """Store changes, and look up those that are watched, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S if self._watched else None):
                    await self._has_pending.wait()
            self._has_pending.clear()
            for webhook_id in tuple(self._pending):
                if pending := self._pending.pop(webhook_id, None):
                    await self._write(webhook_id, pending)
            if self._watched:
                await self._check_watched()

    async def _check_watched(self) -> None:
        """Report what the database has. Nothing is stored meanwhile: the same task does that."""
        asked = [each for each in self._watched.items() if each[0] not in self._pending]
        try:
            found = await asyncio.to_thread(self._store.find_unfinished, origin=self._origin)
        except StoreUnavailable as error:
            _log.warning("recoveries-not-read", extra={"reason": str(error)})
            return
        for webhook_id, check in asked:
            # Not those that were changed or watched again during the query.
            if self._watched.get(webhook_id) is check and webhook_id not in self._pending:
                check(is_behind=webhook_id in found, record=found.get(webhook_id))

    async def start_replays(self) -> NoReturn:
        """Create the replays that are due, until cancelled."""
        sweep_s = time.monotonic() + _SWEEP_S
        done_version: int | None = None
        while True:
            await asyncio.sleep(until_next_tick(START_S))
            # What is due depends on what is stored, not on the time.
            version = self._store.database.data_version()
            try:
                if version is None or version != done_version:
                    await asyncio.to_thread(self._start_due)
                    done_version = version
                if time.monotonic() >= sweep_s:
                    sweep_s = time.monotonic() + _SWEEP_S
                    finish = partial(self._store.finish_abandoned_recoveries, origin=self._origin)
                    await asyncio.to_thread(finish)
            except StoreUnavailable as error:
                _log.debug("recoveries-not-started", extra={"reason": str(error)})

    def _start_due(self) -> None:
        for webhook_id in self._store.find_due_recoveries(_STARTS_MAX, origin=self._origin):
            replay = self._store.start_recovery(webhook_id, origin=self._origin)
            if replay is not None:
                self._wake_workers(replay.id)
                _log.info("recovery-started", extra={"webhook": webhook_id, "replay": replay.id})

    def _add(
        self,
        webhook_id: str,
        change: Callable[[], None] | None,
        missed: OutageRecord | None,
        stored: Callable[[], None],
    ) -> None:
        pending = self._pending.setdefault(webhook_id, _PendingChange())
        pending.missed = _both(pending.missed, missed)
        pending.change = change
        pending.stored.append(stored)
        self._has_pending.set()

    async def _write(self, webhook_id: str, pending: _PendingChange) -> None:
        try:
            await asyncio.to_thread(self._store_change, webhook_id, pending)
        except StoreUnavailable as error:
            _log.warning("recovery-not-stored", extra={"webhook": webhook_id, "reason": str(error)})
            await asyncio.sleep(_RETRY_S)
            self._put_back(webhook_id, pending)
            return
        for each in pending.stored:
            each()

    def _store_change(self, webhook_id: str, pending: _PendingChange) -> None:
        if pending.missed is not None:
            self._store.save_recovery(
                webhook_id, pending.missed, origin=self._origin, is_recovered=True
            )
        if pending.change is not None:
            pending.change()

    def _put_back(self, webhook_id: str, failed: _PendingChange) -> None:
        """Write a change again, unless a later one replaces it."""
        later = self._pending.setdefault(webhook_id, failed)
        if later is not failed:
            later.missed = _both(failed.missed, later.missed)
            later.stored = failed.stored + later.stored
        self._has_pending.set()


def _both(earlier: OutageRecord | None, later: OutageRecord | None) -> OutageRecord | None:
    """A record that covers two outages."""
    if earlier is None or later is None:
        return earlier or later
    window = Window(
        min(earlier.window.from_ms, later.window.from_ms),
        max(earlier.window.to_ms, later.window.to_ms),
    )
    return replace(later, since_ms=min(earlier.since_ms, later.since_ms), window=window)
