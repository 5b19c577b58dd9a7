"""Verification of real receivers by a real sender."""

import asyncio
import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import parse_qs, urlsplit

import pytest
from standardwebhooks import Webhook as StandardWebhook

from app.domain.delivery import Delivered, Rejected
from app.domain.model import Validation, Webhook
from app.webhooks.challenge import crc_response
from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, SignatureStatus, WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from app.webhooks.verification import (
    CRC_BODY_BYTES_MAX,
    VerificationFailed,
    Verified,
    verify_receiver,
)
from tests.unit.app.webhooks.faulty_peer import Behaviour, FaultyPeer, hang
from tests.unit.app.webhooks.scripted_peer import ScriptedPeer
from tests.unit.app.webhooks.stored_webhook import HTTP_REFUSED, OLD_SECRET, webhook_at

pytestmark = pytest.mark.anyio

FAR_MS = 10**15


def ping_to(url: str) -> Webhook:
    return webhook_at(url, Validation.PING)


def crc_to(url: str) -> Webhook:
    return webhook_at(url, Validation.CRC)


async def test_an_accepted_ping_verifies_and_is_signed_like_an_event(
    sender: WebhookSender, receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    webhook = ping_to(f"{receiver.url}/hooks?a=b")
    receiver.secret = webhook.secret
    for _ in range(2):
        assert await verify_receiver(sender, webhook) == Verified()
    first, second = received
    assert (first.path, first.signature, first.is_ping) == (
        "/hooks?a=b",
        SignatureStatus.VERIFIED,
        True,
    )
    ping = StandardWebhook(webhook.secret).verify(first.body, dict(first.headers))
    assert ping.keys() == {"type", "timestamp", "data"}
    assert (ping["type"], ping["data"]) == ("webhook.ping", {"webhookId": "wh_1"})
    assert first.event_id.startswith("ping_")
    assert first.event_id != second.event_id


async def test_a_receiver_without_a_secret_accepts_a_ping(
    sender: WebhookSender, receiver: WebhookReceiver
) -> None:
    assert await verify_receiver(sender, ping_to(receiver.url)) == Verified()


@pytest.mark.parametrize("validation", list(Validation))
async def test_the_old_secret_verifies_only_during_the_grace_period(
    sender: WebhookSender, receiver: WebhookReceiver, validation: Validation
) -> None:
    receiver.secret = OLD_SECRET
    within = webhook_at(receiver.url, validation, old_until_ms=FAR_MS)
    assert await verify_receiver(sender, within) == Verified()
    verdict = await verify_receiver(sender, replace(within, previous_secret_until_ms=1))
    assert isinstance(verdict, VerificationFailed)


@pytest.mark.parametrize("status", [301, 307, 401, 404, 410, 429, 500, 503])
async def test_a_rejected_ping_fails_the_verification(
    sender: WebhookSender, receiver: WebhookReceiver, status: int
) -> None:
    receiver.answer(status)
    verdict = await verify_receiver(sender, ping_to(receiver.url))
    assert isinstance(verdict, VerificationFailed)
    assert verdict.reason.startswith(f"ping: HTTP {status} ")


async def test_another_url_can_be_verified_with_the_webhooks_secrets(
    sender: WebhookSender, receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    webhook = ping_to("http://127.0.0.1:1/")
    assert await verify_receiver(sender, webhook, f"{receiver.url}/elsewhere") == Verified()
    assert await verify_receiver(sender, webhook) == VerificationFailed(
        "ping: connect: Connection refused"
    )
    assert [each.path for each in received] == ["/elsewhere"]


async def test_only_a_receiver_with_the_secret_passes_a_challenge(
    sender: WebhookSender, receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    webhook = crc_to(f"{receiver.url}/hooks?a=b")
    assert await verify_receiver(sender, webhook) == VerificationFailed("crc: HTTP 403 Forbidden")
    receiver.secret = new_secret()
    wrong = "crc: response_token is not the HMAC-SHA256 of crc_token under the secret"
    assert await verify_receiver(sender, webhook) == VerificationFailed(wrong)
    receiver.secret = webhook.secret
    assert await verify_receiver(sender, webhook) == Verified()
    assert not received, "a challenge is no webhook"


def answering(
    webhook: Callable[[], Webhook],
    requests: list[bytes],
    *,
    head: str = "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n",
    change: Callable[[bytes], bytes] = bytes,
) -> Behaviour:
    """A foreign receiver that answers a challenge correctly, changed by `change`."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        query = parse_qs(urlsplit(requests[-1].split(b" ")[1].decode()).query)
        body = change(crc_response(webhook().secret, query["crc_token"][0]))
        writer.write(head.format(len(body)).encode() + body)
        await writer.drain()

    return behave


async def verdict_on(
    sender: WebhookSender, requests: list[bytes], **answer: object
) -> Verified | VerificationFailed:
    webhooks: list[Webhook] = []
    behaviour = answering(lambda: webhooks[0], requests, **answer)  # type: ignore[arg-type]
    async with FaultyPeer(behaviour) as peer:
        webhooks.append(crc_to(f"{peer.url}?a=b"))
        return await verify_receiver(sender, webhooks[0])


async def test_a_challenge_is_a_get_with_a_new_token_after_the_urls_query(
    sender: WebhookSender,
) -> None:
    requests: list[bytes] = []
    for _ in range(2):
        assert await verdict_on(sender, requests) == Verified()
    queries = []
    for request in requests:
        method, path, version = request.partition(b"\r\n")[0].decode().split(" ")
        assert (method, version) == ("GET", "HTTP/1.1")
        assert path.startswith("/hook?a=b&crc_token=")
        assert b"content-length" not in request.lower()
        queries.append(parse_qs(urlsplit(path).query))
    first, second = queries
    assert first.keys() == {"a", "crc_token", "nonce"}
    assert first["crc_token"] != second["crc_token"]
    assert first["nonce"] != second["nonce"]


@pytest.mark.parametrize(
    "head",
    [
        "HTTP/1.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n",
        "HTTP/1.1 201 Created\r\ncontent-type: text/plain\r\ncontent-length: {}\r\n\r\n",
    ],
    ids=["1.0", "close", "interim", "chunked", "another status of the 200s"],
)
async def test_a_response_counts_with_any_framing(sender: WebhookSender, head: str) -> None:
    def end(body: bytes) -> bytes:
        return body + b"\r\n0\r\n\r\n" if "chunked" in head else body

    if "chunked" in head:
        # The size of the chunk is that of the answer alone.
        size = len(crc_response(new_secret(), "x"))
        head = head.format(size)
    assert await verdict_on(sender, [], head=head, change=end) == Verified()


@pytest.mark.parametrize(
    ("spaces", "verdict"),
    [
        (0, Verified()),
        (1, VerificationFailed(f"crc: the response did not end within {CRC_BODY_BYTES_MAX} bytes")),
    ],
)
async def test_a_response_is_read_up_to_its_limit(
    sender: WebhookSender, spaces: int, verdict: Verified | VerificationFailed
) -> None:
    def pad(body: bytes) -> bytes:
        return body.ljust(CRC_BODY_BYTES_MAX + spaces)

    assert await verdict_on(sender, [], change=pad) == verdict


async def test_a_response_is_never_decompressed(sender: WebhookSender) -> None:
    head = "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {}\r\n\r\n"
    verdict = await verdict_on(sender, [], head=head, change=gzip.compress)
    problem = "crc: the response is not a JSON object with a string 'response_token'"
    assert verdict == VerificationFailed(problem)


async def test_a_response_with_more_members_counts(sender: WebhookSender) -> None:
    def add(body: bytes) -> bytes:
        return json.dumps({"for_user_id": "1"} | json.loads(body), indent=2).encode()

    assert await verdict_on(sender, [], change=add) == Verified()


async def test_a_redirect_fails_the_verification(
    sender: WebhookSender, receiver: WebhookReceiver
) -> None:
    redirect = f"HTTP/1.1 302 X\r\nlocation: {receiver.url}/\r\ncontent-length: 0\r\n\r\n".encode()
    for validation in Validation:
        async with ScriptedPeer([[redirect]]) as peer:
            webhook = webhook_at(peer.url, validation)
            receiver.secret = webhook.secret
            verdict = await verify_receiver(sender, webhook)
        assert verdict == VerificationFailed(
            f"{validation}: HTTP 302 Found; redirects are not followed"
        )


async def test_a_response_is_never_quoted(sender: WebhookSender, receiver: WebhookReceiver) -> None:
    def expose(_: bytes) -> bytes:
        return b'{"response_token": "inner-secret", "password": "inner-secret"}'

    verdict = await verdict_on(sender, [], change=expose)
    assert isinstance(verdict, VerificationFailed)
    assert "inner" not in verdict.reason


@pytest.mark.parametrize("validation", list(Validation))
async def test_a_verification_times_out(
    sender: WebhookSender, validation: Validation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webhooks.verification.VERIFICATION_TIMEOUT_S", 0.05)
    async with FaultyPeer(hang()) as peer:
        verdict = await verify_receiver(sender, webhook_at(peer.url, validation))
    assert verdict == VerificationFailed(
        f"{validation}: timeout: no complete response within 0.05 s"
    )


@pytest.mark.parametrize("validation", list(Validation))
@pytest.mark.parametrize("address", ["127.0.0.1", "10.1.2.3", "169.254.169.254"])
async def test_a_name_that_became_private_is_not_requested(
    resolve: Callable[..., None],
    receiver: WebhookReceiver,
    received: list[ReceivedWebhook],
    validation: Validation,
    address: str,
) -> None:
    guard = Guard(allow_http=True)
    url = f"http://rebound.example:{receiver.port}/"
    guard.check_url(url)
    resolve("rebound.example", address)
    async with WebhookSender(guard) as sender:
        verdict = await verify_receiver(sender, webhook_at(url, validation))
    assert isinstance(verdict, VerificationFailed)
    assert verdict.reason.startswith(f"{validation}: address refused: rebound.example is ")
    assert address not in verdict.reason
    assert not received


async def test_a_refused_url_fails_the_verification() -> None:
    async with WebhookSender(Guard()) as sender:
        verdict = await verify_receiver(sender, crc_to("http://example.com/"))
    assert verdict == VerificationFailed(f"crc: not sent: {HTTP_REFUSED}")


async def test_a_connection_is_shared_by_verifications_and_events(sender: WebhookSender) -> None:
    refused = b"HTTP/1.1 403 X\r\ncontent-length: 5\r\n\r\nhello"
    answers = [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", refused, refused]
    async with ScriptedPeer([answers]) as peer:
        assert await sender.send(peer.url, {}, b"{}") == Delivered(200)
        outcome = await sender.get(peer.url, {"a": "b c&"}, {}, body_bytes_max=5)
        assert outcome == (Rejected(403, None, "HTTP 403 Forbidden", "hello"), b"hello")
        _, body = await sender.get(peer.url, {}, {}, body_bytes_max=4)
        assert body is None
        assert peer.connections == 1
    assert peer.requests[1].startswith(b"GET /hook?a=b+c%26 HTTP/1.1\r\nhost: 127.0.0.1:")
