"""Delivery attempts: prepare a signed request, send it once, record its outcome."""

import resource
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from app.domain.concurrency import ConcurrencyLimit, is_overload
from app.domain.delivery import AttemptOutcome, Delivered, Rejected, Unreachable
from app.domain.receivers import Receiver
from app.log.event import LoggedEvent
from app.webhooks.endpoint_request import endpoint_request, note_outcome
from app.webhooks.metrics import DeliveryMetrics
from app.webhooks.pool import MayStart, always
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender
from app.webhooks.token_cache import TokenUnavailable

CROWDED_FROM: Final = 4_096
"""Requests in flight of one process, or half of its open files if they are fewer: each has a socket
and some tens of kilobytes."""


class WebhookMessage(NamedTuple):
    """The content of a request, equal in all attempts. `id` is its `webhook-id`."""

    id: str
    body: bytes
    headers: Mapping[str, str] | None = None


class Attempt(NamedTuple):
    """A completed attempt; times as `time.monotonic` counts."""

    outcome: AttemptOutcome
    started_s: float
    ended_s: float

    @property
    def duration_s(self) -> float:
        """Seconds from the start of the attempt to its outcome."""
        return self.ended_s - self.started_s


class AttemptSender:
    """Sends delivery attempts and counts them."""

    def __init__(self, sender: WebhookSender, metrics: DeliveryMetrics) -> None:
        self._sender = sender
        self._metrics = metrics
        self._in_flight = 0
        open_files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._crowded_from = min(CROWDED_FROM, open_files_max // 2)

    def is_crowded(self) -> bool:
        """Whether the process has so many requests in flight that few are added."""
        return self._in_flight >= self._crowded_from

    async def send(
        self,
        message: WebhookMessage,
        webhook: Receiver,
        *,
        url: str | None = None,
        replay_id: str | None = None,
        may_start: MayStart = always,
    ) -> Attempt:
        """Send a message once, signed with the current secrets of the webhook.

        `url` replaces the webhook's URL. `may_start` is called right before bytes leave; if it
        returns False, the outcome is `NotSent`.
        """
        extra, timeout_s = message.headers, None
        if webhook.options is not None:
            started_s = time.monotonic()
            try:
                added = await endpoint_request(self._sender.tokens, webhook, url)
            except TokenUnavailable as error:
                return self._counted(Unreachable(str(error)), started_s, message)
            extra = {**added.headers, **(extra or {})}
            timeout_s = added.timeout_s
        now_ms = time.time_ns() // 1_000_000
        headers = webhook_headers(
            webhook.secrets_at(now_ms),
            message.id,
            now_ms // 1_000,
            message.body,
            replay_id,
            extra=extra,
        )
        started_s = time.monotonic()
        self._in_flight += 1
        try:
            outcome = await self._sender.send(
                url or webhook.url,
                headers,
                message.body,
                may_start=may_start,
                timeout_s=timeout_s,
            )
        finally:
            self._in_flight -= 1
        if webhook.options is not None:
            note_outcome(self._sender.tokens, webhook.options, outcome)
        return self._counted(outcome, started_s, message)

    def _counted(
        self, outcome: AttemptOutcome, started_s: float, message: WebhookMessage
    ) -> Attempt:
        ended_s = time.monotonic()
        self._metrics.count(outcome, ended_s - started_s, len(message.body))
        return Attempt(outcome, started_s, ended_s)


def record_attempt(limit: ConcurrencyLimit, attempt: Attempt, in_flight: int) -> None:
    """Record an attempt of an endpoint that had `in_flight` requests, in its limit."""
    outcome = attempt.outcome
    if type(outcome) is Delivered:
        limit.record_response(attempt.started_s, attempt.ended_s, in_flight)
    elif isinstance(outcome, Rejected | Unreachable) and is_overload(outcome):
        is_answered = isinstance(outcome, Rejected)
        limit.record_overload(attempt.started_s, attempt.ended_s, is_answered=is_answered)


def event_message(event: LoggedEvent) -> WebhookMessage:
    """A message with one event: its own id and its own body."""
    return WebhookMessage(event.event_id, event.value)


def batch_message(events: Sequence[LoggedEvent]) -> WebhookMessage:
    """A message with several events as a JSON array, whose elements have their own ids."""
    names = "".join(f"{event.offset}:{event.event_id}\n" for event in events)
    digest = sha256(names.encode("utf-8", "surrogatepass")).hexdigest()
    # An empty body between commas would not be JSON.
    body = b"[%b]" % b",".join([event.value or b"null" for event in events])
    return WebhookMessage(f"batch_{digest[:32]}", body, {"webhook-batch-size": str(len(events))})
