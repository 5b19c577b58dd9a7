"""Sends the batches of one replay: rate limit, endpoint health, lease, retries and splitting."""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, Protocol

from app.delivery.attempt import (
    Attempt,
    AttemptSender,
    WebhookMessage,
    batch_message,
    event_message,
    record_attempt,
)
from app.domain.concurrency import ConcurrencyLimit
from app.domain.delivery import Delivered, NotSent, Rejected, Unreachable
from app.domain.endpoint_health import (
    CONSECUTIVE_FAILED_EVENTS_MAX,
    HealthState,
    ProbedEndpointHealth,
)
from app.domain.model import Failure
from app.domain.rates import RateLimiter
from app.domain.receiver_failure import ReceiverFailure, ReceiverFailureTracker
from app.domain.retry import GONE, GiveUp, RetryPolicy, is_permanent
from app.domain.turns import ReplayActivity
from app.domain.windows import format_time
from app.log.event import LoggedEvent
from app.replay_workers.checkpoints import CheckpointAge
from app.replay_workers.endpoint import ReplayEndpoint
from app.replay_workers.errors import ReceiverFailing, ReceiverGone, ReplayRefused
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.queue import BatchProgress, QueuedBatch, ReplayQueue

CONTENT_TOO_LARGE: Final = 413

DEFERRALS_MAX: Final = 2
"""How often a batch is sent again after the others before a replay that waits for a failing
receiver gives it up. With few sender tasks, one batch has all the failed attempts of an outage, as
a batch has that the receiver never accepts; only the latter has them again and again."""

_SLEEP_S_MIN: Final = 0.001
"""A shorter sleep costs more than it delays; the rate limiter compensates later."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The last failed attempt of a request, and the number of its attempts."""

    attempts: int
    outcome: Rejected | Unreachable
    duration_ms: int | None
    ended_ms: int | None

    @property
    def status(self) -> int | None:
        """The last HTTP status, if there was a response."""
        return self.outcome.status if isinstance(self.outcome, Rejected) else None

    @property
    def response(self) -> str | None:
        """The beginning of the last response body, if there was a response."""
        return self.outcome.response if isinstance(self.outcome, Rejected) else None


class MayPostpone(Protocol):
    """Whether a replay waits for a failing receiver."""

    def __call__(self, *, is_alone: bool) -> bool:
        """Whether it does; `is_alone` if one batch is left.

        Raises:
            ReceiverGone: it has waited for so long that its webhook is to be disabled.
        """


def never_postpones(*, is_alone: bool) -> bool:  # noqa: ARG001
    """Events of a requested replay are given up."""
    return False


class _Deferred(Exception):
    """The batch is sent again after the others."""


class _Stopped(Exception):
    """The sender was stopped before the batch was finished."""


@dataclass(slots=True)
class ReplaySender:
    """Delivers batches, from the first attempt to the last. Shared by all sender tasks.

    `events_max` limits the events of a request; it shrinks when the receiver answers 413.
    `refused` is called when the replay must stop. `may_postpone` says whether it waits for a
    failing receiver instead of giving its events up; if `is_ordered`, no event overtakes one that
    fails.
    """

    replay_id: str
    endpoint: ReplayEndpoint
    attempts: AttemptSender
    policy: RetryPolicy
    lease: LeaseKeeper
    checkpoint_age: CheckpointAge
    rate_limiter: RateLimiter
    refused: Callable[[Exception], None]
    activity: ReplayActivity
    concurrency: ConcurrencyLimit
    may_postpone: MayPostpone = never_postpones
    is_ordered: bool = False
    is_batched: bool = False
    events_max: int = 1
    health: ProbedEndpointHealth = field(init=False)
    in_request: "set[asyncio.Task[None] | None]" = field(init=False, default_factory=set)
    """The sender tasks that wait for a response."""
    failures: ReceiverFailureTracker = field(init=False, default_factory=ReceiverFailureTracker)
    _probe_s: float | None = field(init=False, default=None)
    _probe_ms: int | None = field(init=False, default=None)
    _is_stopping: bool = field(init=False, default=False)
    _is_withheld: bool = field(init=False, default=False)
    _waiting: int = field(init=False, default=0)
    """Requests that wait for a retry."""
    _probe_turn: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    """Held by the task that probes a failing endpoint."""

    def __post_init__(self) -> None:
        self.health = ProbedEndpointHealth(self.policy)

    @property
    def is_retrying(self) -> bool:
        """Whether a request failed that will be sent again."""
        return self.failures.has_waiting_requests

    def stop(self, *, withholds: bool) -> None:
        """Start no more attempts; `withholds` those, too, whose connection is being opened.

        Otherwise these leave: events behind them may have been delivered, and would be repeated.
        """
        self._is_stopping = True
        self._is_withheld = withholds

    async def deliver(self, queue: ReplayQueue, queued: QueuedBatch) -> None:
        """Deliver a batch, in parts if it is too large, and settle it in the queue."""
        progress = queue.begin(queued)
        check_outage = partial(self._check_outage, queue, queued)
        try:
            while progress.parts:
                refusal = await self._deliver_part(queue, progress, check_outage)
                if refusal:
                    queue.settle(queued, progress.delivered, progress.failures)
                    self.refused(refusal)
                    return
        except _Stopped:
            return
        except _Deferred:
            queue.defer(queued)
            return
        except (ReceiverFailing, ReceiverGone) as reason:
            self.refused(reason)
            return
        queue.settle(queued, progress.delivered, progress.failures)
        self._limit_in_flight(queue)

    async def _deliver_part(
        self, queue: ReplayQueue, progress: BatchProgress, check_outage: Callable[[str], None]
    ) -> ReplayRefused | None:
        """Deliver the first part, or split it; the reason if the replay must stop.

        Raises what `check_outage` raises before a part is given up; the part is left then.
        """
        parts, failures = progress.parts, progress.failures
        events = parts[0]
        if len(events) > self.events_max:
            parts.popleft()
            parts.extendleft(reversed(_halves(events)))
            return None
        result = await self._attempt_until_final(events, queue)
        if isinstance(result, Delivered):
            earlier = progress.delivered.get(result.status, 0)
            progress.delivered[result.status] = earlier + len(events)
            parts.popleft()
            return None
        if result.status == CONTENT_TOO_LARGE and len(events) > 1:
            self.events_max = min(self.events_max, len(events) // 2)
            return None
        if not is_permanent(result.outcome):
            check_outage(result.outcome.reason)
        parts.popleft()
        failures += _failures(events, result)
        self.health.record_failed_events(len(events))
        refusal = self._refusal(events, result)
        if refusal is not None:
            for unsent in parts:
                not_sent = replace(result, attempts=0, duration_ms=None, ended_ms=None)
                failures += _failures(unsent, not_sent)
        return refusal

    def _check_outage(self, queue: ReplayQueue, queued: QueuedBatch, reason: str) -> None:
        """Return if a batch that has no attempts left may be given up.

        Raises:
            ReceiverFailing: the replay waits until the receiver accepts events again.
            ReceiverGone: it has waited for too long.
            _Deferred: other batches are to show whether the receiver fails for this one alone.
            _Stopped: no other batch will show it.
        """
        is_alone = queue.waiting_events <= len(queued.batch.events)
        has_outage = is_alone or self.is_ordered or self.health.state is HealthState.DOWN
        if not (has_outage or self.health.is_failing) or not self.may_postpone(is_alone=is_alone):
            return
        if has_outage:
            raise ReceiverFailing(f"the receiver, which fails again: {reason}")
        if queued.deferrals < DEFERRALS_MAX:
            raise _Stopped if self._is_stopping else _Deferred

    async def _attempt_until_final(
        self, events: Sequence[LoggedEvent], queue: ReplayQueue
    ) -> Delivered | GivenUp:
        """Send events in one request until they are delivered or given up."""
        message = batch_message(events) if self.is_batched else event_message(events[0])
        try:
            return await self._attempt_repeatedly(message, events, queue)
        finally:
            self.failures.record_end(events[0].offset)

    async def _attempt_repeatedly(
        self, message: WebhookMessage, events: Sequence[LoggedEvent], queue: ReplayQueue
    ) -> Delivered | GivenUp:
        attempts = 0
        while True:
            attempt = await self._attempt_when_allowed(message, len(events))
            outcome = attempt.outcome
            if isinstance(outcome, Delivered):
                return outcome
            wait_s = 0.0
            if not isinstance(outcome, NotSent):
                attempts += 1
                step = self.policy.after_failure(outcome, attempts, random.random())  # noqa: S311
                if isinstance(step, GiveUp) or self.health.state is HealthState.DOWN:
                    duration_ms = round(attempt.duration_s * 1_000)
                    return GivenUp(attempts, outcome, duration_ms, _to_ms(attempt.ended_s))
                wait_s = step.seconds
                self._record_failure(events[0].offset, outcome, wait_s)
            if self._is_stopping:
                raise _Stopped
            await self._wait_for_retry(wait_s, queue)

    async def _wait_for_retry(self, wait_s: float, queue: ReplayQueue) -> None:
        """Wait while another request is in flight instead: a few bad events stop no others."""
        self._waiting += 1
        self._limit_in_flight(queue)
        try:
            await asyncio.sleep(wait_s)
        finally:
            self._waiting -= 1

    def _limit_in_flight(self, queue: ReplayQueue) -> None:
        queue.limit_in_flight(self.concurrency.limit_beside(self._waiting))

    def receiver_failure(self, waiting_events: int) -> ReceiverFailure | None:
        """The failed attempts while requests wait for another one; None otherwise."""
        probe_s = self.health.next_probe_s
        if probe_s != self._probe_s:
            # Once per probe: two conversions of one time may differ by a millisecond.
            self._probe_s = probe_s
            self._probe_ms = None if probe_s is None else _to_ms(probe_s)
        return self.failures.failure(self._probe_ms, waiting_events)

    def _record_failure(self, offset: int, outcome: Rejected | Unreachable, wait_s: float) -> None:
        now_ms = time.time_ns() // 1_000_000
        self.failures.record_failure(offset, outcome, now_ms, now_ms + round(1_000 * wait_s))

    async def _attempt_when_allowed(self, message: WebhookMessage, events: int) -> Attempt:
        """Send a message once; while the endpoint is failing, wait for the turn to probe it."""
        health = self.health
        while True:
            if health.is_failing:
                async with self._probe_turn:
                    # The previous probe may have found it healthy.
                    if health.is_failing:
                        await asyncio.sleep(health.probe_wait_s(time.monotonic()))
                        await self._wait_for_rate_limit(events)
                        return await self._attempt(message)
            await self._wait_for_rate_limit(events)
            # It may have started to fail during the wait.
            if not health.is_failing:
                return await self._attempt(message)

    async def _wait_for_rate_limit(self, events: int) -> None:
        wait_s = self.rate_limiter.reserve(events, time.monotonic())
        if wait_s > _SLEEP_S_MIN:
            await asyncio.sleep(wait_s)

    async def _attempt(self, message: WebhookMessage) -> Attempt:
        await self.lease.wait_until_held()
        await self.checkpoint_age.wait_until_within_limit()
        self.activity.count_request()
        task = asyncio.current_task()
        self.in_request.add(task)
        try:
            # The lease is checked again right before the request leaves: while a connection was
            # opened, the process may have been suspended and the replay taken over.
            attempt = await self.attempts.send(
                message,
                self.endpoint.webhook,
                url=self.endpoint.url,
                replay_id=self.replay_id,
                may_start=self._may_start,
            )
        finally:
            in_flight = len(self.in_request)
            self.in_request.discard(task)
        outcome = attempt.outcome
        record_attempt(self.concurrency, attempt, in_flight)
        if type(outcome) is Delivered:
            self.health.record_success()
        elif isinstance(outcome, Rejected | Unreachable):
            jitter = random.random()  # noqa: S311  spreads load, guards nothing
            self.health.record_failure(outcome, attempt.started_s, attempt.ended_s, jitter)
        return attempt

    def _may_start(self) -> bool:
        return (
            self.lease.is_held() and self.checkpoint_age.is_within_limit() and not self._is_withheld
        )

    def _refusal(self, events: Sequence[LoggedEvent], given_up: GivenUp) -> ReplayRefused | None:
        """Why the replay must stop, if it must."""
        reason = given_up.outcome.reason
        if given_up.status == GONE:
            # Standard Webhooks: a receiver that answers 410 must not be sent anything again.
            return ReceiverGone(f"the receiver wants no more events: {reason}")
        if self.health.exceeds_failure_limit:
            return ReplayRefused(
                f"stopped after {CONSECUTIVE_FAILED_EVENTS_MAX:,} consecutive failures, the last "
                f"event of {format_time(events[-1].timestamp_ms)}: {reason}"
            )
        return None


def _to_ms(monotonic_s: float) -> int:
    """A time of the monotonic clock in milliseconds since 1970."""
    return time.time_ns() // 1_000_000 + round(1_000 * (monotonic_s - time.monotonic()))


def _halves(events: list[LoggedEvent]) -> tuple[list[LoggedEvent], list[LoggedEvent]]:
    middle = (len(events) + 1) // 2
    return events[:middle], events[middle:]


def _failures(events: Sequence[LoggedEvent], given_up: GivenUp) -> list[Failure]:
    result = (given_up.attempts, given_up.status, given_up.outcome.reason)
    last = (given_up.duration_ms, given_up.response, given_up.ended_ms)
    return [Failure(event.offset, event.event_id, *result, *last) for event in events]
