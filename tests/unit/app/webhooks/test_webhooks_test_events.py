"""Test events between a real sender and real receivers."""

from dataclasses import replace

import pytest
from standardwebhooks import Webhook as StandardWebhook

from app.domain.model import Validation, WebhookStatus
from app.webhooks import endpoint_test
from app.webhooks.endpoint_test import send_test_event
from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, SignatureStatus, WebhookReceiver
from app.webhooks.sender import WebhookSender
from tests.unit.app.webhooks.faulty_peer import FaultyPeer, hang
from tests.unit.app.webhooks.scripted_peer import ScriptedPeer
from tests.unit.app.webhooks.stored_webhook import webhook_at

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("status", list(WebhookStatus))
async def test_a_test_event_is_signed_for_every_status_of_the_webhook(
    sender: WebhookSender,
    receiver: WebhookReceiver,
    received: list[ReceivedWebhook],
    status: WebhookStatus,
) -> None:
    webhook = replace(webhook_at(f"{receiver.url}/hooks?a=b", Validation.CRC), status=status)
    receiver.secret = webhook.secret
    for _ in range(2):
        found = await send_test_event(sender, webhook)
        assert (found.delivered, found.status, found.reason) == (True, 204, None)
        assert found.duration_ms >= 0
    first, second = received
    assert (first.path, first.signature, first.is_ping) == (
        "/hooks?a=b",
        SignatureStatus.VERIFIED,
        False,
    )
    event = StandardWebhook(webhook.secret).verify(first.body, dict(first.headers))
    assert event.keys() == {"type", "timestamp", "data"}
    assert (event["type"], event["data"]) == ("rewind.test", {"webhookId": webhook.id})
    assert first.event_id.startswith("test_")
    assert first.event_id != second.event_id


@pytest.mark.parametrize(
    ("script", "delivered", "status", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi", True, 200, None),
        (
            b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\nhi",
            False,
            401,
            "HTTP 401 Unauthorized",
        ),
        (
            b"HTTP/1.1 302 X\r\nlocation: /\r\ncontent-length: 2\r\n\r\nhi",
            False,
            302,
            "HTTP 302 Found; redirects are not followed",
        ),
    ],
)
async def test_the_result_has_the_response_of_the_receiver(
    sender: WebhookSender, script: bytes, delivered: bool, status: int, reason: str | None
) -> None:
    async with ScriptedPeer([[script]]) as peer:
        found = await send_test_event(sender, webhook_at(peer.url, Validation.PING))
    assert found == endpoint_test.EndpointTest(delivered, status, reason, found.duration_ms, "hi")


async def test_an_unreachable_receiver_has_no_response(
    sender: WebhookSender, refused_address: str
) -> None:
    found = await send_test_event(sender, webhook_at(f"http://{refused_address}/", Validation.PING))
    assert (found.delivered, found.status, found.response) == (False, None, None)
    assert found.reason is not None
    assert "refused" in found.reason


async def test_a_receiver_that_hangs_times_out(
    sender: WebhookSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_test, "TEST_TIMEOUT_S", 0.05)
    async with FaultyPeer(hang()) as peer:
        found = await send_test_event(sender, webhook_at(peer.url, Validation.PING))
    assert found.reason == "timeout: no complete response within 0.05 s"
    assert (found.delivered, found.status, found.response) == (False, None, None)
    assert found.duration_ms >= 50


async def test_no_test_event_is_sent_to_a_refused_url(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    webhook = webhook_at(receiver.url, Validation.PING)
    async with WebhookSender(Guard(allow_http=True)) as sender:
        found = await send_test_event(sender, webhook)
    assert (found.delivered, found.status, found.response) == (False, None, None)
    assert found.reason is not None
    assert "127.0.0.1" in found.reason
    assert not received
