"""Deletes what has expired from the database: replays, resends, notices, previous secrets."""

import asyncio
import logging
import time
from collections import Counter
from typing import Final

from app.process import BackgroundTask, on_own_thread
from app.services.metrics import ApiMetrics
from app.store import Store, StoreError

_log: Final = logging.getLogger("rewind.api")

INTERVAL_S: Final = 60.0

REST: Final = 4
"""The next batch waits this many times as long as the last one took, so that deleting millions of
rows takes at most a fifth of the time."""


class Housekeeping(BackgroundTask):
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
        super().__init__(_log, "housekeeping-stopped")
        self._store = store
        self._kept_ms = kept_ms
        self._metrics = metrics
        self._interval_s = interval_s

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
            _log.info("expired-secrets-erased", extra={"secrets": erased})

    async def _delete_resends(self, kept_ms: int) -> None:
        while count := await on_own_thread(lambda: self._store.delete_old_resends(kept_ms)):
            self._metrics.count_deleted_rows("resends", count)

    async def _delete_notices(self) -> None:
        deleted = 0
        while count := await on_own_thread(self._store.delete_stale_account_notices):
            deleted += count
        while await on_own_thread(self._store.delete_old_confirmations):
            pass
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
