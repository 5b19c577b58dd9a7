"""Headers, credentials and timeouts of webhooks, between a real sender and real servers."""

import asyncio
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import replace
from urllib.parse import parse_qs

import pytest
from prometheus_client import CollectorRegistry

from app.delivery.attempt import AttemptSender, WebhookMessage
from app.domain.delivery import Delivered, Rejected, Unreachable
from app.domain.endpoint_options import (
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
    EndpointOptions,
)
from app.domain.model import Validation, Webhook
from app.webhooks import token_cache
from app.webhooks.endpoint_test import send_test_event
from app.webhooks.guard import Guard
from app.webhooks.metrics import DeliveryMetrics
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.verification import VerificationFailed, Verified, verify_receiver
from tests.unit.app.webhooks.faulty_peer import FaultyPeer, hang
from tests.unit.app.webhooks.scripted_peer import ScriptedPeer
from tests.unit.app.webhooks.stored_webhook import webhook_at

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
UNAUTHORIZED = b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n"


def json_answer(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(body), body)


def token_answer(token: str, *, expires_in: int = 3_600) -> bytes:
    body = f'{{"access_token": "{token}", "token_type": "bearer", "expires_in": {expires_in}}}'
    return json_answer(body.encode())


def header(request: bytes, name: bytes) -> str | None:
    head, _, _ = request.partition(b"\r\n\r\n")
    values = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return values[name].decode() if name in values else None


def with_options(url: str, options: EndpointOptions) -> Webhook:
    return replace(webhook_at(url, Validation.PING), options=options)


def credentials(url: str, **members: object) -> EndpointOptions:
    authentication = ClientCredentials(url, "re:wind", "s3 cret", **members)  # type: ignore[arg-type]
    return EndpointOptions(authentication=authentication)


async def attempt(
    sender: WebhookSender, webhook: Webhook, url: str | None = None, name: str = "evt_1"
) -> Delivered | Rejected | Unreachable:
    attempts = AttemptSender(sender, DeliveryMetrics(CollectorRegistry()))
    sent = await attempts.send(WebhookMessage(name, b"{}"), webhook, url=url)
    assert isinstance(sent.outcome, Delivered | Rejected | Unreachable)
    return sent.outcome


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (EndpointOptions({"x-tenant": "blue"}), {"x-tenant": "blue"}),
        (
            EndpointOptions(authentication=BasicAuthentication("Zoë", "a:b")),
            {"authorization": f"Basic {b64encode('Zoë:a:b'.encode()).decode()}"},
        ),
        (
            EndpointOptions({"x-a": "1"}, BearerAuthentication("t0k")),
            {"x-a": "1", "authorization": "Bearer t0k"},
        ),
    ],
)
async def test_every_request_to_a_webhook_has_its_headers(
    sender: WebhookSender,
    receiver: WebhookReceiver,
    received: list[ReceivedWebhook],
    options: EndpointOptions,
    expected: dict[str, str],
) -> None:
    webhook = with_options(f"{receiver.url}/hooks", options)
    receiver.secret = webhook.secret
    assert isinstance(await attempt(sender, webhook), Delivered)
    assert (await send_test_event(sender, webhook)).delivered
    assert await verify_receiver(sender, webhook) == Verified()
    crc = replace(webhook, validation=Validation.CRC)
    assert await verify_receiver(sender, crc) == Verified()
    assert len(received) >= 3
    for request in received:
        assert request.problem is None
        assert expected.items() <= dict(request.headers).items()


async def test_another_server_gets_no_header_and_no_credentials(sender: WebhookSender) -> None:
    options = EndpointOptions({"x-key": "k"}, BearerAuthentication("t0k"))
    async with ScriptedPeer([[OK, OK]]) as own, ScriptedPeer([[OK]]) as other:
        webhook = with_options(own.url, options)
        await attempt(sender, webhook, other.url)
        await attempt(sender, webhook, f"{own.url}/elsewhere")
    assert (header(other.requests[0], b"x-key"), header(other.requests[0], b"authorization")) == (
        None,
        None,
    )
    assert header(own.requests[0], b"x-key") == "k"


async def test_concurrent_attempts_share_one_token_until_it_expires(sender: WebhookSender) -> None:
    tokens = [[token_answer("one", expires_in=3_600)]]
    async with ScriptedPeer(tokens) as server, ScriptedPeer([[OK] * 4]) as receiver:
        webhook = with_options(receiver.url, credentials(server.url, scope="a b", audience="hooks"))
        results = await asyncio.gather(*(attempt(sender, webhook) for _ in range(3)))
        assert all(isinstance(each, Delivered) for each in results)
        await attempt(sender, webhook)
    (request,) = server.requests
    assert {header(each, b"authorization") for each in receiver.requests} == {"Bearer one"}
    # RFC 6749, section 2.3.1: both are form-encoded first.
    pair = b64encode(b"re%3Awind:s3+cret").decode()
    assert header(request, b"authorization") == f"Basic {pair}"
    assert header(request, b"content-type") == "application/x-www-form-urlencoded"
    assert parse_qs(request.partition(b"\r\n\r\n")[2].decode()) == {
        "grant_type": ["client_credentials"],
        "scope": ["a b"],
        "audience": ["hooks"],
    }


async def test_credentials_may_be_in_the_body(sender: WebhookSender) -> None:
    async with ScriptedPeer([[token_answer("one")]]) as server, ScriptedPeer([[OK]]) as receiver:
        await attempt(sender, with_options(receiver.url, credentials(server.url, in_body=True)))
    assert header(server.requests[0], b"authorization") is None
    form = parse_qs(server.requests[0].partition(b"\r\n\r\n")[2].decode())
    assert (form["client_id"], form["client_secret"]) == (["re:wind"], ["s3 cret"])


async def test_a_rejected_token_is_replaced(
    sender: WebhookSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def outcomes(server: ScriptedPeer) -> list[type]:
        async with ScriptedPeer([[UNAUTHORIZED, OK]]) as receiver:
            webhook = with_options(receiver.url, credentials(server.url))
            found = [type(await attempt(sender, webhook)) for _ in range(2)]
        sent.extend(header(each, b"authorization") for each in receiver.requests)
        return found

    sent: list[str | None] = []
    answers = [token_answer("one"), token_answer("two")]
    async with ScriptedPeer([answers]) as server:
        monkeypatch.setattr(token_cache, "KEPT_S_MIN", 0.0)
        assert await outcomes(server) == [Rejected, Delivered]
    assert sent == ["Bearer one", "Bearer two"]
    sent.clear()
    # A receiver that rejects every token does not cause a request for each event.
    async with ScriptedPeer([answers]) as server:
        monkeypatch.setattr(token_cache, "KEPT_S_MIN", 3_600.0)
        await outcomes(server)
    assert sent == ["Bearer one", "Bearer one"]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            json_answer(b'{"error": "invalid_client"}', b"401 No"),
            "token request: HTTP 401 Unauthorized, invalid_client",
        ),
        (json_answer(b'{"error": "<secret>"}', b"400 No"), "token request: HTTP 400 Bad Request"),
        (
            json_answer(b"{}"),
            "token request: the response has no access_token of up to 8192 characters",
        ),
        (
            json_answer(b'{"access_token": "a", "token_type": "mac"}'),
            "token request: the response has a token_type other than Bearer",
        ),
        (
            json_answer(b'{"access_token": "a\\r\\nhost: b"}'),
            "token request: the response has no access_token of up to 8192 characters",
        ),
    ],
)
async def test_an_attempt_without_a_token_is_not_sent(
    sender: WebhookSender, answer: bytes, reason: str
) -> None:
    async with ScriptedPeer([[answer] * 2]) as server, ScriptedPeer([[OK]]) as receiver:
        webhook = with_options(receiver.url, credentials(server.url))
        for _ in range(2):
            assert await attempt(sender, webhook) == Unreachable(reason)
        found = await send_test_event(sender, webhook)
        assert (found.delivered, found.reason) == (False, reason)
        assert await verify_receiver(sender, webhook) == VerificationFailed(f"ping: {reason}")
    # The failure is remembered for a moment.
    assert (len(server.requests), receiver.requests) == (1, [])


async def test_tokens_are_requested_at_allowed_addresses_only(resolve: object) -> None:
    async with WebhookSender(Guard()) as sender:
        resolve("tokens.example.com", "10.0.0.1")  # type: ignore[operator]
        urls: Sequence[tuple[str, str]] = (
            ("http://tokens.example.com/", "token request: not sent: url scheme is 'http'"),
            (
                "https://tokens.example.com/",
                "token request: address refused: tokens.example.com is private",
            ),
        )
        for url, reason in urls:
            outcome = await attempt(sender, with_options("https://a.example/", credentials(url)))
            assert isinstance(outcome, Unreachable)
            assert outcome.reason.startswith(reason)


async def test_the_timeout_of_a_webhook_ends_an_attempt(sender: WebhookSender) -> None:
    async with FaultyPeer(hang()) as peer:
        outcome = await sender.send(peer.url, {}, b"{}", timeout_s=0.05)
        assert outcome == Unreachable("timeout: no response within 0.05 s")


async def test_the_timeout_of_a_webhook_is_part_of_its_requests(sender: WebhookSender) -> None:
    async with FaultyPeer(hang()) as peer:
        # The store and the API have whole seconds.
        options = EndpointOptions(timeout_s=0.05)  # type: ignore[arg-type]
        outcome = await attempt(sender, with_options(peer.url, options))
    assert outcome == Unreachable("timeout: no response within 0.05 s")
