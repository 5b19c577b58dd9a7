"""Tells the log what replays brought, and never stands in their way."""

import asyncio
import logging
import time
from typing import Final

from app.log.errors import LogError
from app.log.event import OwedEvent
from app.log.publisher import EventPublisher
from app.log.replay_outcomes import ReplayOutcome, encode_replay_outcome
from app.log.topics import REPLAY_OUTCOMES
from app.replay_workers.metrics import WorkerMetrics

PATIENCE_S: Final = 1.0
"""How long a checkpoint waits for the log to have what it tells: about as long as between two."""

AWAY_S: Final = 30.0
"""For so long nothing is told after a refusal: to ask at each checkpoint would slow all of them."""

_log: Final = logging.getLogger(__name__)


class OutcomeBook:
    """Writes outcomes to `replay_outcomes` one by one; what the log does not take is given up.

    Nothing is kept for later, so a log that is away for long costs no memory. For one event loop.
    """

    def __init__(self, publisher: EventPublisher, metrics: WorkerMetrics) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._away_until_s = 0.0

    async def note(self, outcome: ReplayOutcome) -> None:
        """Return once the log has the outcome, or it is given up."""
        if time.monotonic() < self._away_until_s:
            self._metrics.count_lost_outcome()
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._publisher.publish(REPLAY_OUTCOMES, [_record(outcome)])
        except (LogError, TimeoutError) as error:
            self._away_until_s = time.monotonic() + AWAY_S
            self._metrics.count_lost_outcome()
            reason = str(error) or f"no answer for {PATIENCE_S:g} s"
            _log.warning(
                "replay-outcomes-lost", extra={"replay": outcome.replay_id, "reason": reason}
            )


def _record(outcome: ReplayOutcome) -> OwedEvent:
    return OwedEvent(
        outcome.webhook_id,
        f"{outcome.replay_id}-{outcome.epoch}-{outcome.start}",
        "replay.outcome",
        outcome.time_ms,
        encode_replay_outcome(outcome),
    )
