"""Test events: one signed POST to the receiver of a webhook, with its response."""

import asyncio
import time
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected, Unreachable
from app.domain.receivers import Receiver
from app.webhooks.endpoint_request import endpoint_request
from app.webhooks.request import rewind_event_body, webhook_headers
from app.webhooks.sender import WebhookSender
from app.webhooks.token_cache import TokenUnavailable

TEST_EVENT_TYPE: Final = "rewind.test"
TEST_ID_PREFIX: Final = "test_"

TEST_TIMEOUT_S: Final = 10.0
"""A person waits for the result; a sender with shorter limits keeps them."""


@dataclass(frozen=True, slots=True)
class EndpointTest:
    """The result of a test event.

    `status` is None without a response, and `reason` is None if the event was delivered. `response`
    is the beginning of the response body, as text.
    """

    delivered: bool
    status: int | None
    reason: str | None
    duration_ms: int
    response: str | None


async def send_test_event(sender: WebhookSender, webhook: Receiver) -> EndpointTest:
    """Send one test event to the receiver of `webhook`, also if the webhook is not enabled.

    Never raises for what a receiver does, or how long it takes.
    """
    start_s = time.monotonic()
    try:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            outcome, response = await _send(sender, webhook)
    except TimeoutError:
        reason = f"timeout: no complete response within {TEST_TIMEOUT_S:g} s"
        return EndpointTest(False, None, reason, _ms_since(start_s), None)
    return _result(outcome, _ms_since(start_s), response)


async def _send(sender: WebhookSender, webhook: Receiver) -> tuple[AttemptOutcome, str | None]:
    try:
        added = await endpoint_request(sender.tokens, webhook)
    except TokenUnavailable as error:
        return Unreachable(str(error)), None
    now_ms = time.time_ns() // 1_000_000
    body = rewind_event_body(TEST_EVENT_TYPE, webhook.id, now_ms)
    test_id = TEST_ID_PREFIX + token_urlsafe(16)
    headers = webhook_headers(
        webhook.secrets_at(now_ms), test_id, now_ms // 1_000, body, extra=added.headers
    )
    return await sender.send_and_read(webhook.url, headers, body, timeout_s=added.timeout_s)


def _ms_since(start_s: float) -> int:
    return round(1_000 * (time.monotonic() - start_s))


def _result(outcome: AttemptOutcome, duration_ms: int, response: str | None) -> EndpointTest:
    if isinstance(outcome, Delivered):
        return EndpointTest(True, outcome.status, None, duration_ms, response)
    assert not isinstance(outcome, NotSent), "test events are never withheld"
    status = outcome.status if isinstance(outcome, Rejected) else None
    return EndpointTest(False, status, outcome.reason, duration_ms, response)
