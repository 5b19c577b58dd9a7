"""The receiver, tested with a stock HTTP client and raw bytes."""

import asyncio
import socket
import time
from contextlib import suppress

import httpx
import pytest

from app.webhooks.challenge import crc_problem, ping_body
from app.webhooks.receiver import (
    ReceivedChallenge,
    ReceivedWebhook,
    SignatureStatus,
    WebhookReceiver,
)
from app.webhooks.request import webhook_headers
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import DEADLINE_S

pytestmark = pytest.mark.anyio

SECRET = new_secret()


async def exchange(receiver: WebhookReceiver, request: bytes) -> bytes:
    """The bytes that the receiver sends for `request` until it closes."""
    reader, writer = await asyncio.open_connection(receiver.host, receiver.port)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    return answer


async def test_a_request_of_a_stock_client_is_recorded(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    receiver.answer(503, retry_after="9")
    before_ms = time.time_ns() // 1_000_000
    headers = {"Webhook-Id": "evt_1", "Webhook-Replay-Id": "rpl_1"}
    async with httpx.AsyncClient(timeout=DEADLINE_S, verify=False) as client:
        for _ in range(2):
            answer = await client.post(f"{receiver.url}/a?b", headers=headers, content=b"{}")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "9")
    webhook = received[1]
    assert (webhook.event_id, webhook.replay_id, webhook.path) == ("evt_1", "rpl_1", "/a?b")
    assert (webhook.body, webhook.status, webhook.signature) == (
        b"{}",
        503,
        SignatureStatus.UNCHECKED,
    )
    assert before_ms <= webhook.received_ms <= time.time_ns() // 1_000_000


async def test_a_valid_signature_is_verified_and_an_invalid_one_gets_401(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    receiver.secret = SECRET
    headers = webhook_headers([SECRET], "evt_1", int(time.time()), b"{}")
    async with httpx.AsyncClient(timeout=DEADLINE_S, verify=False) as client:
        good = await client.post(receiver.url, headers=headers, content=b"{}")
        bad = await client.post(receiver.url, headers=headers, content=b"{ }")
    assert (good.status_code, bad.status_code) == (204, 401)
    assert [webhook.signature for webhook in received] == [
        SignatureStatus.VERIFIED,
        SignatureStatus.REFUSED,
    ]
    assert received[0].problem is None
    assert received[1].problem is not None
    assert "no v1 signature" in received[1].problem


async def test_a_challenge_is_answered_with_the_current_secret() -> None:
    challenges: list[ReceivedChallenge] = []
    webhooks: list[ReceivedWebhook] = []
    receiver = WebhookReceiver(on_webhook=webhooks.append, on_challenge=challenges.append)
    await receiver.start()
    receiver.answer(503)
    async with httpx.AsyncClient(timeout=DEADLINE_S, verify=False) as client:
        url = f"{receiver.url}//[?a=b&crc_token=x%20y%26z&nonce=1"
        assert (await client.get(url)).status_code == 403
        receiver.secret = SECRET
        answer = await client.get(url)
    await receiver.stop()
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert crc_problem([SECRET], "x y&z", answer.content) is None
    assert [each.is_answered for each in challenges] == [False, True]
    assert challenges[0].path.endswith("?a=b&crc_token=x%20y%26z&nonce=1")
    assert not webhooks


async def test_a_ping_is_received_and_recognized(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    async with httpx.AsyncClient(timeout=DEADLINE_S, verify=False) as client:
        for event_id, body in (("ping_1", ping_body("wh_1", 0)), ("evt_1", b"{}")):
            headers = webhook_headers([SECRET], event_id, int(time.time()), body)
            answer = await client.post(receiver.url, headers=headers, content=body)
            assert answer.status_code == 204
    assert [webhook.is_ping for webhook in received] == [True, False]


async def test_a_stop_aborts_connections_and_a_restart_keeps_the_port(
    receiver: WebhookReceiver,
) -> None:
    port = receiver.port
    async with httpx.AsyncClient(timeout=DEADLINE_S, verify=False) as client:
        await client.post(receiver.url, content=b"{}")
        await receiver.stop()
        await receiver.stop()
        with pytest.raises(httpx.TransportError):
            await client.post(receiver.url, content=b"{}")
        await receiver.start()
        assert receiver.port == port
        assert (await client.post(receiver.url, content=b"{}")).status_code == 204


@pytest.mark.parametrize("turns", range(6))
async def test_a_stop_aborts_a_connection_that_is_being_accepted(
    receiver: WebhookReceiver, turns: int
) -> None:
    with socket.create_connection((receiver.host, receiver.port)) as client:
        # asyncio takes some turns of its loop to accept a connection.
        for _ in range(turns):
            await asyncio.sleep(0)
        await receiver.stop()
        client.settimeout(DEADLINE_S)
        with suppress(ConnectionResetError):
            assert await asyncio.to_thread(client.recv, 1) == b""


async def test_a_response_can_be_delayed(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    receiver.answer(200, delay_s=0.01)
    async with httpx.AsyncClient(timeout=DEADLINE_S, verify=False) as client:
        assert (await client.post(receiver.url, content=b"{}")).status_code == 200
    assert len(received) == 1


async def test_a_request_cut_into_single_bytes_is_one_request(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    reader, writer = await asyncio.open_connection(receiver.host, receiver.port)
    for byte in b"POST /x HTTP/1.1\r\nwebhook-id: e\r\ncontent-length: 3\r\n\r\nabc":
        writer.write(bytes([byte]))
        await writer.drain()
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 204 No Content\r\n\r\n"
    writer.close()
    assert [(webhook.event_id, webhook.body) for webhook in received] == [("e", b"abc")]


async def test_pipelined_requests_are_answered_in_order(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    one = b"POST /1 HTTP/1.1\r\ncontent-length: 1\r\n\r\n1"
    two = b"POST /2 HTTP/1.1\r\ncontent-length: 1\r\nconnection: close\r\n\r\n2"
    answer = await exchange(receiver, one + two)
    assert answer.count(b"HTTP/1.1 204") == 2
    assert answer.endswith(b"connection: close\r\n\r\n")
    assert [webhook.path for webhook in received] == ["/1", "/2"]


async def test_expect_100_continue_is_answered(receiver: WebhookReceiver) -> None:
    head = b"POST / HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1\r\n"
    reader, writer = await asyncio.open_connection(receiver.host, receiver.port)
    writer.write(head + b"\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    writer.write(b"x")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204 ")
    writer.close()


LONG_HEAD = b"POST / HTTP/1.1\r\nx: "
LONG_BODY = b"POST / HTTP/1.1\r\ncontent-length: 30000000\r\n\r\n"


# One byte above each bound: a receiver that closes with bytes unread resets the connection.
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 405),
        (b"GET /?crc_token= HTTP/1.1\r\n\r\n", 405),
        (b"PUT /?crc_token=x HTTP/1.1\r\ncontent-length: 0\r\n\r\n", 405),
        (b"no http\r\n\r\n", 400),
        (LONG_HEAD.ljust(64 * 2**10 + 1, b"y"), 431),
        (LONG_BODY.ljust(20 * 2**20 + 1, b"y"), 413),
    ],
    ids=["GET", "no token", "PUT", "noise", "long head", "long body"],
)
async def test_a_request_that_is_no_webhook_is_rejected(
    receiver: WebhookReceiver, received: list[ReceivedWebhook], request_bytes: bytes, status: int
) -> None:
    answer = await exchange(receiver, request_bytes)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert not received
