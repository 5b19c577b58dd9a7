"""Deletes what has expired from the database: replays, resends, notices, previous secrets."""

import asyncio
import logging
import time
from collections import Counter
from contextlib import suppress
from typing import Final, Self

from app.process import on_own_thread
from app.services.metrics import ApiMetrics
from app.store import Store, StoreError

_log: Final = logging.getLogger("rewind.api")

INTERVAL_S: Final = 60.0

REST: Final = 4
"""The next batch waits this many times as long as the last one took, so that deleting millions of
rows takes at most a fifth of the time."""


class Housekeeping:
    """Deletes expired rows every minute during its `async with`.

    Every API process does so. Batches are short transactions that skip locked rows, so several
    processes share the work. After a failure the next minute continues. `kept_ms` is the time for
    which replays and resends are kept; None keeps them for ever.
    """

    def __init__(
        self,
        store: Store,
        kept_ms: int | None,
        metrics: ApiMetrics,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._store = store
        self._kept_ms = kept_ms
        self._metrics = metrics
        self._interval_s = interval_s
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(_log_failure)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError, Exception):  # logged by the callback
            await self._task

    async def _run(self) -> None:
        while True:
            try:
                await self.clean()
            except StoreError as error:
                _log.warning("housekeeping-failed", extra={"reason": str(error)})
            await asyncio.sleep(self._interval_s)

    async def clean(self) -> None:
        """Delete everything that has expired.

        Raises:
            StoreError: the database does not answer or has another schema.
        """
        # A missing table would raise an error that is no StoreError.
        await on_own_thread(self._store.check)
        await self._erase_secrets()
        await self._delete_notices()
        if self._kept_ms is not None:
            await self._delete_replays(self._kept_ms)
            await self._delete_resends(self._kept_ms)

    async def _erase_secrets(self) -> None:
        erased = 0
        while count := await on_own_thread(self._store.erase_expired_secrets):
            erased += count
        if erased:
            self._metrics.count_erased_secrets(erased)
            _log.info("expired-secrets-erased", extra={"webhooks": erased})

    async def _delete_resends(self, kept_ms: int) -> None:
        while count := await on_own_thread(lambda: self._store.delete_old_resends(kept_ms)):
            self._metrics.count_deleted_rows("resends", count)

    async def _delete_notices(self) -> None:
        deleted = 0
        while count := await on_own_thread(self._store.delete_stale_account_notices):
            deleted += count
        if deleted:
            _log.warning("stale-notices-deleted", extra={"notices": deleted})

    async def _delete_replays(self, kept_ms: int) -> None:
        rows: Counter[str] = Counter()
        while True:
            began_s = time.monotonic()
            deleted = await on_own_thread(lambda: self._store.delete_old_replays(kept_ms))
            if not deleted:
                break
            rows.update(deleted)
            for table, count in deleted.items():
                self._metrics.count_deleted_rows(table, count)
            await asyncio.sleep(REST * (time.monotonic() - began_s))
        if rows:
            _log.info("old-replays-deleted", extra={"rows": dict(rows)})


def _log_failure(task: "asyncio.Task[None]") -> None:
    # The process continues without it, so the error is logged.
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("housekeeping-stopped", exc_info=error)
