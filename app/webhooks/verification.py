"""Verification of a receiver: it must prove that the webhook's owner controls it."""

import asyncio
import time
from dataclasses import dataclass
from secrets import token_urlsafe
from typing import Final

from app.domain.delivery import AttemptOutcome, Delivered, NotSent
from app.domain.model import Validation
from app.domain.receivers import Receiver
from app.webhooks.challenge import (
    NONCE_PARAMETER,
    PING_ID_PREFIX,
    TOKEN_PARAMETER,
    crc_problem,
    ping_body,
)
from app.webhooks.endpoint_request import EndpointRequest, endpoint_request
from app.webhooks.request import USER_AGENT, webhook_headers
from app.webhooks.sender import WebhookSender
from app.webhooks.token_cache import TokenUnavailable

VERIFICATION_TIMEOUT_S: Final = 10.0
"""Twitter's timeout; a sender with shorter limits keeps them."""

CRC_BODY_BYTES_MAX: Final = 16 * 1024
"""A correct response has about seventy bytes."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The receiver answered as the webhook's owner would."""


@dataclass(frozen=True, slots=True)
class VerificationFailed:
    """The receiver did not; `reason` is for the webhook's owner."""

    reason: str


async def verify_receiver(
    sender: WebhookSender, webhook: Receiver, url: str | None = None
) -> Verified | VerificationFailed:
    """Verify the receiver of `webhook`, or the one at `url`, by the webhook's validation.

    Redirects fail. Never raises for what a receiver does, or how long it takes.
    """
    find_problem = _challenge if webhook.validation is Validation.CRC else _ping
    try:
        async with asyncio.timeout(VERIFICATION_TIMEOUT_S):
            added = await endpoint_request(sender.tokens, webhook, url)
            problem = await find_problem(sender, webhook, url or webhook.url, added)
    except TokenUnavailable as error:
        problem = str(error)
    except TimeoutError:
        problem = f"timeout: no complete response within {VERIFICATION_TIMEOUT_S:g} s"
    if problem is None:
        return Verified()
    return VerificationFailed(f"{webhook.validation}: {problem}")


async def _ping(
    sender: WebhookSender, webhook: Receiver, url: str, added: EndpointRequest
) -> str | None:
    now_ms = time.time_ns() // 1_000_000
    body = ping_body(webhook.id, now_ms)
    ping_id = PING_ID_PREFIX + token_urlsafe(16)
    headers = webhook_headers(
        webhook.secrets_at(now_ms), ping_id, now_ms // 1000, body, extra=added.headers
    )
    return _problem(await sender.send(url, headers, body, timeout_s=added.timeout_s))


async def _challenge(
    sender: WebhookSender, webhook: Receiver, url: str, added: EndpointRequest
) -> str | None:
    token = token_urlsafe(32)
    outcome, body = await sender.get(
        url,
        {TOKEN_PARAMETER: token, NONCE_PARAMETER: token_urlsafe(16)},
        {"accept": "application/json", **added.headers, "user-agent": USER_AGENT},
        body_bytes_max=CRC_BODY_BYTES_MAX,
        timeout_s=added.timeout_s,
    )
    problem = _problem(outcome)
    if problem is not None:
        return problem
    if body is None:
        return f"the response did not end within {CRC_BODY_BYTES_MAX} bytes"
    return crc_problem(webhook.secrets_at(time.time_ns() // 1_000_000), token, body)


def _problem(outcome: AttemptOutcome) -> str | None:
    if isinstance(outcome, Delivered):
        return None
    assert not isinstance(outcome, NotSent), "verification requests are never withheld"
    return outcome.reason
