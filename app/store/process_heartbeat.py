"""The heartbeats of a process, which the process registry of the database shows."""

import asyncio
import logging
import os
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from app.config import Settings
from app.domain.processes import HEARTBEAT_S, Details, ProcessKind
from app.process import BackgroundTask, on_own_thread
from app.store.errors import StoreError
from app.store.store import Store

_log: Final = logging.getLogger(__name__)

_LEAVE_TIMEOUT_S: Final = 0.5
"""A process that ends does not wait longer for the database."""

_BEATS_PER_CLEANUP: Final = 720
"""Heartbeats, about one hour, between deletions of dead processes."""


def process_name(settings: Settings) -> str:
    """The name of this process: HOST:PID."""
    return f"{settings.server}:{os.getpid()}"


class ProcessHeartbeat(BackgroundTask):
    """Records heartbeats of a process during its `async with`, and removes the process at the end.

    Each write uses a thread of its own, one at a time: a database that hangs delays only the next
    heartbeat. A failed write is replaced by the next heartbeat. `details` is called before each.
    """

    def __init__(
        self,
        store: Store,
        kind: ProcessKind,
        name: str,
        origin: str,
        details: Callable[[], Details] = dict,
        heartbeat_s: float = HEARTBEAT_S,
    ) -> None:
        super().__init__(_log, "process-heartbeats-stopped")
        self._store = store
        self._kind = kind
        self._name = name
        self._origin = origin
        self._details = details
        self._heartbeat_s = heartbeat_s
        self._started_ms = time.time_ns() // 1_000_000
        self._beats = 0
        self._ending = asyncio.Event()

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._ending.set()
        await asyncio.wait([self._task], timeout=_LEAVE_TIMEOUT_S)
        self._task.cancel()

    async def _run(self) -> None:
        while not self._ending.is_set():
            await self._write(partial(self._record, self._details()))
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), self._pause_s())
        if self._beats:
            await self._write(partial(self._store.remove_process, self._kind, self._name))

    def _pause_s(self) -> float:
        """The time until the next heartbeat of all processes.

        They send them together: idle ones look for work after a commit, and do so once for all.
        """
        return self._heartbeat_s - time.time() % self._heartbeat_s

    async def _write(self, work: Callable[[], None]) -> None:
        try:
            await on_own_thread(work)
        except StoreError as error:
            _log.warning("process-heartbeat-failed", extra={"reason": str(error)})

    def _record(self, details: Details) -> None:
        if not self._beats:
            # A missing table would raise an error that is no StoreError.
            self._store.check()
        if self._beats % _BEATS_PER_CLEANUP == 0:
            self._store.delete_dead_processes()
        self._store.record_process_heartbeat(
            self._kind, self._name, self._origin, self._started_ms, details
        )
        self._beats += 1
