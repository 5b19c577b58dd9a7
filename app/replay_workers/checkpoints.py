"""Stores the checkpoints of one replay, and limits what is delivered above the stored one.

A takeover repeats what was delivered above the *stored* checkpoint. While the database does not
respond, deliveries continue for `UNSTORED_S_MAX` longer than a checkpoint may be old, and for no
more events than the queue admits; see `ReplayQueue`.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from app.domain.checkpointing import Checkpoint, DeliveryLedger
from app.domain.model import Claim, Replay
from app.domain.samples import SampleSchedule
from app.log.replay_outcomes import ReplayOutcome
from app.replay_workers.dependencies import WorkerDependencies
from app.replay_workers.lease_keeper import LeaseKeeper

UNSTORED_S_MAX: Final = 3.0
"""How long a checkpoint may take until it is stored. One second of it is for the log, to which the
outcome is published first."""

_log: Final = logging.getLogger(__name__)


class CheckpointAge:
    """The age of a stored checkpoint, above which deliveries wait. `clock` counts seconds."""

    def __init__(self, seconds_max: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds_max = seconds_max
        self._clock = clock
        self._as_of_s = clock()
        self._has_changed = asyncio.Event()

    def is_within_limit(self) -> bool:
        """Whether further deliveries may start."""
        return self._clock() - self._as_of_s <= self._seconds_max

    async def wait_until_within_limit(self) -> None:
        """Return at once if deliveries may start, else once a newer checkpoint is stored."""
        while not self.is_within_limit():
            self._has_changed.clear()
            await self._has_changed.wait()

    def reset(self, as_of_s: float) -> None:
        """Record that a checkpoint of the time `as_of_s` is stored."""
        self._as_of_s = as_of_s
        self._has_changed.set()


class CheckpointRecorder:
    """The ledger of a replay, and its last stored checkpoint."""

    def __init__(
        self, claim: Claim, resume_at: int, lease: LeaseKeeper, dependencies: WorkerDependencies
    ) -> None:
        replay = claim.replay
        self._claim = claim
        self._lease = lease
        self._dependencies = dependencies
        self._interval_s = dependencies.settings.checkpoint_interval_s
        self._resume_at = resume_at
        self.age = CheckpointAge(self._interval_s + UNSTORED_S_MAX)
        self.ledger = DeliveryLedger(
            resume_at, replay.counts, replay.status_counts, replay.unreadable
        )
        self.recorded = self.ledger.checkpoint()
        self._samples = SampleSchedule(_age_ms(replay), _monotonic_ms())
        self._wake = asyncio.Event()
        self._has_request = False
        self._is_finished = False

    def request(self) -> None:
        """Let `run` store a checkpoint now."""
        self._has_request = True
        self._wake.set()

    def finish(self) -> None:
        """Let `run` return."""
        self._is_finished = True
        self._wake.set()

    async def run(self, on_recorded: Callable[[], None]) -> None:
        """Store checkpoints, at each interval and when requested, until `finish`.

        One in progress is awaited: cut off, it would run twice.

        Raises:
            LeaseLost: another worker may have the replay.
        """
        while await self._wait_until_due():
            await self._record_or_warn()
            # Most of what was requested meanwhile is stored now; `on_recorded` asks for the rest.
            self._has_request = False
            on_recorded()

    async def _wait_until_due(self) -> bool:
        """Wait for a request or the end of the interval; False once finished."""
        if not (self._has_request or self._is_finished):
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._wake.wait()
        return not self._is_finished

    async def _record_or_warn(self) -> None:
        """Store a checkpoint; log a warning when it takes so long that deliveries stop."""
        warning = asyncio.get_running_loop().call_later(UNSTORED_S_MAX, self._warn)
        try:
            await self.record()
        finally:
            warning.cancel()

    def _warn(self) -> None:
        _log.warning("checkpoint-overdue", extra={"replay": self._claim.lease.replay_id})

    async def record(self, *, even_if_unchanged: bool = False) -> None:
        """Store the checkpoint, if it has changed.

        Raises:
            LeaseLost: another worker may have the replay.
        """
        as_of_s = time.monotonic()
        checkpoint = self.ledger.checkpoint()
        if checkpoint != self.recorded or even_if_unchanged:
            await self._publish_outcome(checkpoint)
            await self._store(checkpoint, even_if_unchanged)
            self.ledger.forget_recorded(checkpoint)
            self._dependencies.metrics.count_events(self.recorded.counts, checkpoint.counts)
            self.recorded = checkpoint
        self.age.reset(as_of_s)

    async def _store(self, checkpoint: Checkpoint, is_last: bool) -> None:
        with_sample = self._samples.is_due(_monotonic_ms()) or is_last
        await self._lease.write(
            lambda store, lease: store.checkpoint(
                lease,
                checkpoint.offset,
                checkpoint.counts,
                checkpoint.failures,
                checkpoint.statuses,
                unreadable=checkpoint.unreadable,
                with_sample=with_sample,
            )
        )

    async def _publish_outcome(self, checkpoint: Checkpoint) -> None:
        """Publish to `replay_outcomes` what lies between the last checkpoint and this one."""
        start, epoch = self.recorded.offset, self._claim.lease.epoch
        # A range without events is published too where an earlier worker may have published
        # another range with the same start.
        is_resumed = start == self._resume_at and epoch > 1
        if checkpoint.offset == start or not (checkpoint.hours or is_resumed):
            return
        replay = self._claim.replay
        await self._dependencies.outcome_publisher.publish_outcome(
            ReplayOutcome(
                replay.id,
                replay.webhook_id,
                self._dependencies.settings.origin,
                replay.source,
                epoch,
                start,
                checkpoint.offset,
                time.time_ns() // 1_000_000,
                checkpoint.hours,
            )
        )


def _age_ms(replay: Replay) -> int:
    """How long ago a replay that was just claimed was started, by the database's clock."""
    if replay.heartbeat_ms is None or replay.started_ms is None:
        return 0
    return replay.heartbeat_ms - replay.started_ms


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
