"""Publishes the results of replays and of scheduled retries to the log, best effort."""

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from app.domain.deliveries import DeliveryPlace
from app.domain.delivery import LiveOutcome
from app.domain.resends import ResendResult, ScheduledRetry
from app.log.errors import LogError
from app.log.event import NewEvent
from app.log.outcomes import DeliveryOutcome, OutcomeRetries, encode_outcome
from app.log.publisher import EventPublisher
from app.log.replay_outcomes import ReplayOutcome, encode_replay_outcome
from app.log.topics import DELIVERY_OUTCOMES, REPLAY_OUTCOMES
from app.replay_workers.metrics import WorkerMetrics

PUBLISH_S_MAX: Final = 1.0
"""How long a checkpoint waits for the log; about the time between two checkpoints."""

RETRIES_PUBLISH_S_MAX: Final = 10.0
"""How long the end of a scheduled retry waits for the log: well below the lease of its claim."""

PAUSE_S: Final = 30.0
"""After a failure nothing is published for this time, so that checkpoints are not slowed down."""

_log: Final = logging.getLogger(__name__)


class EndedRetries(NamedTuple):
    """An event whose scheduled retries have ended; `retry` is the last one.

    `digest` is that of `lasting_digest`; None if the event was not read.
    """

    webhook_id: str
    place: DeliveryPlace
    retry: ScheduledRetry
    outcome: LiveOutcome
    result: ResendResult
    digest: int | None = None


class OutcomePublisher:
    """Publishes outcomes, and drops those that the log does not accept in time.

    It keeps nothing for later, so a long outage of the log takes no memory. For one event loop.
    """

    def __init__(self, publisher: EventPublisher, metrics: WorkerMetrics) -> None:
        self._publisher = publisher
        self._metrics = metrics
        self._paused_until_s: dict[str, float] = {}
        """By topic."""

    async def publish_outcome(self, outcome: ReplayOutcome) -> None:
        """Return when the log has the outcome, or it is dropped."""
        extra = {"replay": outcome.replay_id}
        await self._publish(REPLAY_OUTCOMES, [_record(outcome)], PUBLISH_S_MAX, extra)

    async def publish_ended_retries(self, ended: Sequence[EndedRetries]) -> None:
        """Return when the log has their outcomes, or they are dropped."""
        now_ms = time.time_ns() // 1_000_000
        records = [
            _retry_record(each, offset, now_ms)
            for each in ended
            for offset in (each.place.offset, *each.retry.copies)
        ]
        if records:
            extra = {"webhook": ended[0].webhook_id}
            await self._publish(DELIVERY_OUTCOMES, records, RETRIES_PUBLISH_S_MAX, extra)

    async def _publish(
        self, topic: str, records: Sequence[NewEvent], within_s: float, extra: dict[str, str]
    ) -> None:
        if time.monotonic() < self._paused_until_s.get(topic, 0.0):
            self._metrics.count_lost_outcomes(len(records))
            return
        try:
            async with asyncio.timeout(within_s):
                await self._publisher.publish(topic, records)
        except (LogError, TimeoutError) as error:
            self._paused_until_s[topic] = time.monotonic() + PAUSE_S
            self._metrics.count_lost_outcomes(len(records))
            reason = str(error) or f"no response for {within_s:g} s"
            _log.warning(
                "outcomes-not-published", extra={"topic": topic, "reason": reason, **extra}
            )


def _record(outcome: ReplayOutcome) -> NewEvent:
    return NewEvent(
        outcome.webhook_id,
        f"{outcome.replay_id}-{outcome.epoch}-{outcome.start}",
        "replay.outcome",
        outcome.time_ms,
        encode_replay_outcome(outcome),
    )


def _retry_record(ended: EndedRetries, offset: int, now_ms: int) -> NewEvent:
    """The outcome of an event, or of its copy, at an offset."""
    retry, result = ended.retry, ended.result
    is_delivered = ended.outcome is LiveOutcome.DELIVERED
    outcome = DeliveryOutcome(
        partition=ended.place.partition,
        offset=offset,
        event_id=retry.event_id,
        outcome=ended.outcome,
        attempts=retry.attempts + result.is_sent,
        status=result.response_status,
        reason=None if is_delivered else result.reason,
        time_ms=now_ms,
        digest=ended.digest,
        duration_ms=result.duration_ms,
        retries=OutcomeRetries.ENDED,
    )
    value = encode_outcome(outcome)
    return NewEvent(ended.webhook_id, retry.event_id, retry.event_type, retry.event_ms, value)
