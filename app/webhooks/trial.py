"""A test delivery: one signed POST to the receiver of a webhook, to see what it says."""

import asyncio
import json
import time
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from app.domain.delivery import AttemptOutcome, Delivered, NotSent, Rejected
from app.domain.model import Webhook
from app.domain.windows import format_time
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender

TRIAL_TYPE: Final = "rewind.test"
TRIAL_ID_PREFIX: Final = "test_"

TRIAL_TIME_S: Final = 10.0
"""Somebody waits for the answer; a sender of shorter limits keeps to its own."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What a receiver made of a test.

    `status` is its answer's, None where none came; `reason` says why it was not delivered, None
    when it was. `response` is how the body of the answer begins, as text.
    """

    delivered: bool
    status: int | None
    reason: str | None
    duration_ms: int
    response: str | None


def trial_body(webhook_id: str, now_ms: int) -> bytes:
    """The body of a test for `webhook_id`: an event as any other, of a type of its own."""
    trial = {
        "type": TRIAL_TYPE,
        "timestamp": format_time(now_ms),
        "data": {"webhookId": webhook_id},
    }
    return json.dumps(trial, separators=(",", ":")).encode()


async def try_out(sender: WebhookSender, webhook: Webhook) -> Trial:
    """Send a test to the receiver of `webhook` once, whatever its status.

    Whatever the receiver does, and however long it takes, is a value.
    """
    now_ms = time.time_ns() // 1_000_000
    body = trial_body(webhook.id, now_ms)
    trial_id = TRIAL_ID_PREFIX + token_urlsafe(16)
    headers = webhook_headers(webhook.secrets_at(now_ms), trial_id, now_ms // 1_000, body)
    began_s = time.monotonic()
    try:
        async with asyncio.timeout(TRIAL_TIME_S):
            outcome, response = await sender.send_and_read(webhook.url, headers, body)
    except TimeoutError:
        reason = f"timeout: no complete answer within {TRIAL_TIME_S:g} s"
        return Trial(False, None, reason, _since(began_s), None)
    return _trial(outcome, _since(began_s), response)


def _since(began_s: float) -> int:
    return round(1_000 * (time.monotonic() - began_s))


def _trial(outcome: AttemptOutcome, duration_ms: int, response: str | None) -> Trial:
    if isinstance(outcome, Delivered):
        return Trial(True, outcome.status, None, duration_ms, response)
    assert not isinstance(outcome, NotSent), "nothing holds a test back"
    status = outcome.status if isinstance(outcome, Rejected) else None
    return Trial(False, status, outcome.reason, duration_ms, response)
