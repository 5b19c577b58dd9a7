"""Claims replays up to a limit and runs each in its own task."""

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from secrets import token_hex
from typing import Final

from app.domain.model import Claim
from app.domain.turns import RunningReplay, Slots
from app.log.replay_requests import RequestHint
from app.process import until_next_tick
from app.replay_workers.account_notices import AccountOutbox
from app.replay_workers.delivery import LAST_REQUESTS_S
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.job import ReplayJob
from app.replay_workers.lease_keeper import boot_clock_s
from app.replay_workers.notifier import Notifier
from app.replay_workers.replay_notices import ReplayOutbox
from app.replay_workers.requested_replays import RequestedReplays
from app.store import StoreUnavailable
from app.store.process_heartbeat import process_name

_log: Final = logging.getLogger(__name__)

_UNAVAILABLE_S_MAX: Final = 5.0

ACCOUNT_POLL_FACTOR: Final = 5
"""Notices to owners may be some seconds late, so that an idle worker does little."""

_LAST_WRITES_S: Final = 3.0
"""How long the last checkpoint and the release may take after the last requests."""


class ReplayWorker:
    """Runs replays concurrently and independently.

    Up to `jobs_per_worker` of them are busy, and `waiting_replays_per_worker` more wait most of
    their time. When all slots are taken and a replay waits, one that has had its turn gives way.
    """

    def __init__(self, dependencies: WorkerDependencies) -> None:
        settings = dependencies.settings
        # Unique per process, also on one host and after a restart. Developers see it.
        worker_id = token_hex(4)
        self.name = f"worker-{worker_id}"
        self.process_name = f"{process_name(settings)}:{worker_id}"
        self._dependencies = dependencies
        self._jobs: dict[asyncio.Task[None], ReplayJob] = {}
        self._unavailable_s = 0.0
        self._last_account_id = ""
        self._requested = RequestedReplays(self.name)
        self._wake = asyncio.Event()
        self._slots = Slots(settings.jobs_per_worker, settings.waiting_replays_per_worker)
        self.waiting = 0
        """How many of the replays wait most of their time."""
        poll_s = settings.poll_interval_s
        self._account_notifier = Notifier(
            AccountOutbox(dependencies), settings, ACCOUNT_POLL_FACTOR * poll_s
        )
        replay_outbox = ReplayOutbox(dependencies, self._account_notifier.wake)
        self._notifier = Notifier(replay_outbox, settings, poll_s)
        dependencies.metrics.watch_lag(self._lag)
        dependencies.metrics.watch_waiting(lambda: self.waiting)

    @property
    def running(self) -> int:
        """The number of replays that it runs."""
        return len(self._jobs)

    def wake(self) -> None:
        """Poll now. For the event loop's thread."""
        self._wake.set()

    def hear_request(self, hint: RequestHint) -> None:
        """Poll for this replay, unless another worker claims it first. For the loop's thread."""
        self._requested.add(hint, time.monotonic())
        if hint.claimed_by is None:
            chance = random.random()  # noqa: S311  spreads load, guards nothing
            delay_s = self._requested.poll_delay_s(self.running - self.waiting, chance)
            asyncio.get_running_loop().call_later(delay_s, self._poll_for, hint.id)

    def _poll_for(self, replay_id: str) -> None:
        if self._requested.is_open(replay_id):
            self.wake()

    async def run(self, stopping: asyncio.Event) -> None:
        """Work until `stopping` is set; return when every replay is finished or released."""
        async with asyncio.TaskGroup() as group:
            notifiers = (self._notifier, self._account_notifier)
            notices = [group.create_task(notifier.run()) for notifier in notifiers]
            waking = group.create_task(self._wake_when_set(stopping))
            await self._claim_until(stopping)
            waking.cancel()
            # Concurrently with the last requests of the replays.
            last_notices = [
                group.create_task(notifier.finish(LAST_REQUESTS_S)) for notifier in notifiers
            ]
            await self._stop_jobs()
            await asyncio.gather(*last_notices)
            for each in notices:
                each.cancel()

    async def _claim_until(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            self._wake.clear()
            if not await self._claim_or_make_room():
                await self._pause()

    async def _pause(self) -> None:
        """Wait until it is woken, or until a poll may find something."""
        pause_s = max(self._dependencies.settings.poll_interval_s, self._unavailable_s)
        while not self._wake.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), until_next_tick(pause_s))
                return
            with suppress(StoreUnavailable):  # the next claim reports it
                if await self._dependencies.work.is_idle():
                    continue
            return

    async def _wake_when_set(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        self.wake()

    async def _claim_or_make_room(self) -> bool:
        """Claim a replay, or let one give way if no slot is free; whether it claimed one."""
        now_s = time.monotonic()
        jobs = tuple(self._jobs.values())
        running = [job.running(now_s) for job in jobs]
        self.waiting = sum(each.is_waiting for each in running)
        try:
            if not self._slots.are_taken(running):
                is_claimed = await self._claim_one()
            else:
                is_claimed = False
                if not any(job.is_stopping for job in jobs):
                    await self._make_room(jobs, running)
        except StoreUnavailable as error:
            self._unavailable_s = min(max(2 * self._unavailable_s, 0.5), _UNAVAILABLE_S_MAX)
            _log.warning("claim-failed", extra={"reason": str(error)})
            return False
        self._unavailable_s = 0.0
        return is_claimed

    async def _make_room(self, jobs: Sequence[ReplayJob], running: Sequence[RunningReplay]) -> None:
        settings = self._dependencies.settings
        account_id = await asyncio.to_thread(
            self._dependencies.store.next_account,
            settings.origin,
            after=self._last_account_id,
            running_max=settings.running_replays_per_account,
        )
        if account_id is None:
            return
        chosen = self._slots.choose_to_give_way(running, account_id)
        if chosen is not None:
            jobs[chosen].give_way()

    async def _claim_one(self) -> bool:
        """Claim a replay; False if there was none."""
        settings = self._dependencies.settings
        sent_s = boot_clock_s()
        claim = await asyncio.to_thread(
            self._dependencies.store.claim,
            self.name,
            settings.lease_s,
            settings.origin,
            after=self._last_account_id,
            running_max=settings.running_replays_per_account,
            located=self._requested.fresh_offsets(time.monotonic()),
        )
        if claim is not None:
            self._last_account_id = claim.replay.account_id
            self._start(claim, sent_s)
            self._report_claim(claim.replay.id)
        return claim is not None

    def _report_claim(self, replay_id: str) -> None:
        hint = RequestHint(replay_id, claimed_by=self.name)
        self._requested.add(hint, time.monotonic())
        self._dependencies.requests.publish_claim(replay_id, self.name)

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
        self.wake()  # a slot is free
        self._notifier.wake()  # its notice may be due
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
