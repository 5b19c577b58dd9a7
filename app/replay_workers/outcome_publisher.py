"""Publishes the results of replays to `replay_outcomes`, best effort."""

import asyncio
import logging
import time
from typing import Final

from app.log.errors import LogError
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.replay_outcomes import ReplayOutcome, encode_replay_outcome
from app.log.topics import REPLAY_OUTCOMES
from app.replay_workers.metrics import WorkerMetrics

PUBLISH_S_MAX: Final = 1.0
"""How long a checkpoint waits for the log; about the time between two checkpoints."""

PAUSE_S: Final = 30.0
"""After a failure nothing is published for this time, so that checkpoints are not slowed down."""

_log: Final = logging.getLogger(__name__)


class ReplayOutcomePublisher:
    """Publishes outcomes one by one, and drops those that the log does not accept in time.

    It keeps nothing for later, so a long outage of the log takes no memory. For one event loop.
    """

    def __init__(self, publisher: EventPublisher, metrics: WorkerMetrics) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._paused_until_s = 0.0

    async def publish_outcome(self, outcome: ReplayOutcome) -> None:
        """Return when the log has the outcome, or it is dropped."""
        if time.monotonic() < self._paused_until_s:
            self._metrics.count_lost_outcome()
            return
        try:
            async with asyncio.timeout(PUBLISH_S_MAX):
                await self._publisher.publish(REPLAY_OUTCOMES, [_record(outcome)])
        except (LogError, TimeoutError) as error:
            self._paused_until_s = time.monotonic() + PAUSE_S
            self._metrics.count_lost_outcome()
            reason = str(error) or f"no response for {PUBLISH_S_MAX:g} s"
            _log.warning(
                "replay-outcomes-lost", extra={"replay": outcome.replay_id, "reason": reason}
            )


def _record(outcome: ReplayOutcome) -> NewEvent:
    return NewEvent(
        outcome.webhook_id,
        f"{outcome.replay_id}-{outcome.epoch}-{outcome.start}",
        "replay.outcome",
        outcome.time_ms,
        encode_replay_outcome(outcome),
    )
