"""Asks a receiver for the proof that who registered its URL may have events sent there."""

import asyncio
import time
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from app.domain.delivery import AttemptOutcome, Delivered, NotSent
from app.domain.model import Validation, Webhook
from app.webhooks.challenge import (
    NONCE_PARAMETER,
    PING_ID_PREFIX,
    TOKEN_PARAMETER,
    crc_problem,
    ping_body,
)
from app.webhooks.request import USER_AGENT, webhook_headers
from app.webhooks.sender import WebhookSender

PROOF_TIME_S: Final = 10.0
"""What Twitter gives a receiver; a sender of shorter limits keeps to its own."""

CRC_ANSWER_BYTES_MAX: Final = 16 * 1024
"""An answer has some seventy."""


@dataclass(frozen=True, slots=True)
class Proved:
    """The receiver wants what this webhook sends."""


@dataclass(frozen=True, slots=True)
class NotProved:
    """The receiver did not say so; `reason` is for the webhook's owner to read."""

    reason: str


async def prove(
    sender: WebhookSender, webhook: Webhook, url: str | None = None
) -> Proved | NotProved:
    """Ask the receiver of `webhook`, or the one at `url`, in the way its owner chose.

    Redirects prove nothing. Whatever a receiver does, and however long it takes, is a value.
    """
    ask = _challenge if webhook.validation is Validation.CRC else _ping
    try:
        async with asyncio.timeout(PROOF_TIME_S):
            problem = await ask(sender, webhook, url or webhook.url)
    except TimeoutError:
        problem = f"timeout: no complete answer within {PROOF_TIME_S:g} s"
    return Proved() if problem is None else NotProved(f"{webhook.validation}: {problem}")


async def _ping(sender: WebhookSender, webhook: Webhook, url: str) -> str | None:
    now_ms = time.time_ns() // 1_000_000
    body = ping_body(webhook.id, now_ms)
    ping_id = PING_ID_PREFIX + token_urlsafe(16)
    headers = webhook_headers(webhook.secrets_at(now_ms), ping_id, now_ms // 1000, body)
    return _problem(await sender.send(url, headers, body))


async def _challenge(sender: WebhookSender, webhook: Webhook, url: str) -> str | None:
    token = token_urlsafe(32)
    outcome, body = await sender.ask(
        url,
        {TOKEN_PARAMETER: token, NONCE_PARAMETER: token_urlsafe(16)},
        {"user-agent": USER_AGENT, "accept": "application/json"},
        body_bytes_max=CRC_ANSWER_BYTES_MAX,
    )
    problem = _problem(outcome)
    if problem is not None:
        return problem
    if body is None:
        return f"the answer did not end within {CRC_ANSWER_BYTES_MAX} bytes"
    return crc_problem(webhook.secrets_at(time.time_ns() // 1_000_000), token, body)


def _problem(outcome: AttemptOutcome) -> str | None:
    if isinstance(outcome, Delivered):
        return None
    assert not isinstance(outcome, NotSent), "nothing holds a proof back"
    return outcome.reason
