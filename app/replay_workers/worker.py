"""Claims replays up to a limit and runs each in its own task."""

import asyncio
import logging
import os
from contextlib import suppress
from secrets import token_hex
from typing import Final

from app.domain.model import Claim
from app.replay_workers.delivery import LAST_REQUESTS_S
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.job import ReplayJob
from app.replay_workers.lease_keeper import boot_clock_s
from app.replay_workers.notifier import Notifier
from app.store import StoreUnavailable

_log: Final = logging.getLogger(__name__)

_UNAVAILABLE_S_MAX: Final = 5.0

_LAST_WRITES_S: Final = 3.0
"""How long the last checkpoint and the release may take after the last requests."""


class ReplayWorker:
    """Runs up to `jobs_per_worker` replays concurrently and independently."""

    def __init__(self, dependencies: WorkerDependencies) -> None:
        settings = dependencies.settings
        # Unique per process, also on one host and after a restart.
        self.name = f"{settings.server}:{os.getpid()}:{token_hex(3)}"
        self._dependencies = dependencies
        self._jobs: dict[asyncio.Task[None], ReplayJob] = {}
        self._unavailable_s = 0.0
        self._last_account_id = ""
        dependencies.metrics.watch_lag(self._lag)

    @property
    def running(self) -> int:
        """The number of replays that it runs."""
        return len(self._jobs)

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; return when every replay is finished or released."""
        async with asyncio.TaskGroup() as group:
            notifier = Notifier(self._dependencies)
            notices = group.create_task(notifier.run())
            await self._claim_until(stopping)
            # Concurrently with the last requests of the replays.
            last_notices = group.create_task(notifier.finish(LAST_REQUESTS_S))
            await self._stop_jobs()
            await last_notices
            notices.cancel()

    async def _claim_until(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            if not await self._claim_one():
                pause_s = max(self._dependencies.settings.poll_interval_s, self._unavailable_s)
                with suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), pause_s)

    async def _claim_one(self) -> bool:
        """Claim a replay; False if there was none, or no free slot."""
        settings = self._dependencies.settings
        if len(self._jobs) >= settings.jobs_per_worker:
            return False
        sent_s = boot_clock_s()
        try:
            claim = await asyncio.to_thread(
                self._dependencies.store.claim,
                self.name,
                settings.lease_s,
                settings.origin,
                after=self._last_account_id,
                running_max=settings.running_replays_per_account,
            )
        except StoreUnavailable as error:
            self._unavailable_s = min(max(2 * self._unavailable_s, 0.5), _UNAVAILABLE_S_MAX)
            _log.warning("claim-failed", extra={"reason": str(error)})
            return False
        self._unavailable_s = 0.0
        if claim is not None:
            self._last_account_id = claim.replay.account_id
            self._start(claim, sent_s)
        return claim is not None

    def _lag(self) -> int:
        # Called by the thread of the metrics server while jobs start and end.
        return sum(job.remaining for job in tuple(self._jobs.values()))

    def _start(self, claim: Claim, sent_s: float) -> None:
        job = ReplayJob(claim, self._dependencies, sent_s)
        task = asyncio.create_task(job.run(), name=claim.lease.replay_id)
        self._jobs[task] = job
        self._dependencies.metrics.running.inc()
        task.add_done_callback(self._remove_job)

    def _remove_job(self, task: "asyncio.Task[None]") -> None:
        del self._jobs[task]
        self._dependencies.metrics.running.dec()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("job-failed", extra={"replay": task.get_name()}, exc_info=error)

    async def _stop_jobs(self) -> None:
        tasks = list(self._jobs)
        for job in self._jobs.values():
            job.stop()
        if not tasks:
            return
        _, late = await asyncio.wait(tasks, timeout=LAST_REQUESTS_S + _LAST_WRITES_S)
        for task in late:
            # Its lease expires, and another worker takes the replay over.
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
