"""Requests to webhooks leave through a proxy."""

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from app.config import ConfigurationError, Settings
from app.domain.delivery import Delivered, Unreachable
from app.domain.egress_proxy import EgressProxy
from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.sender import WebhookSender
from app.webhooks.tunnel import HEAD_BYTES_MAX
from tests.support.http.certificates import CertificateFiles, self_signed
from tests.support.processes.ports import free_port
from tests.unit.app.webhooks.conftest import Resolve
from tests.unit.app.webhooks.connect_proxy import ConnectProxy

pytestmark = pytest.mark.anyio

HEADERS = {"webhook-id": "evt_1"}
ANYTHING = Guard(allow_private=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return self_signed(tmp_path_factory.mktemp("tls"), "hooks.example")


@pytest.fixture
async def proxy() -> AsyncIterator[ConnectProxy]:
    async with ConnectProxy() as proxy:
        yield proxy


def through(proxy: ConnectProxy, user: str = "") -> EgressProxy:
    parsed = EgressProxy.parse(f"http://{user}127.0.0.1:{proxy.port}")
    assert parsed is not None
    return parsed


async def test_requests_share_a_tunnel_to_the_checked_address(
    proxy: ConnectProxy,
    receiver: WebhookReceiver,
    received: list[ReceivedWebhook],
    resolve: Resolve,
) -> None:
    resolve("hooks.example", "127.0.0.1")
    url = f"http://hooks.example:{receiver.port}/a"
    async with WebhookSender(ANYTHING, proxy=through(proxy, "me:p%40ss@")) as sender:
        for _ in range(2):
            assert await sender.send(url, HEADERS, b"{}") == Delivered(204)
    assert [each.headers["host"] for each in received] == [f"hooks.example:{receiver.port}"] * 2
    target = f"127.0.0.1:{receiver.port}"
    assert proxy.requests == [
        [
            f"CONNECT {target} HTTP/1.1",
            f"host: {target}",
            "proxy-authorization: Basic bWU6cEBzcw==",
        ]
    ]


async def test_tls_is_between_the_sender_and_the_receiver(
    proxy: ConnectProxy, certificate: CertificateFiles, resolve: Resolve
) -> None:
    resolve("hooks.example", "127.0.0.1")
    resolve("other.example", "127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.both)
    receiver = WebhookReceiver("127.0.0.1", tls=context)
    await receiver.start()
    trust = ssl.create_default_context(cafile=certificate.certificate)
    try:
        async with WebhookSender(ANYTHING, tls=trust, proxy=through(proxy)) as sender:
            port = receiver.port
            outcome = await sender.send(f"https://hooks.example:{port}/", HEADERS, b"{}")
            assert outcome == Delivered(204)
            outcome = await sender.send(f"https://other.example:{port}/", HEADERS, b"{}")
            assert isinstance(outcome, Unreachable)
            assert outcome.reason.startswith("tls: Hostname mismatch")
    finally:
        await receiver.stop()


async def test_an_address_that_is_not_allowed_is_refused_before_the_proxy(
    proxy: ConnectProxy, resolve: Resolve
) -> None:
    resolve("hooks.example", "10.0.0.5")
    async with WebhookSender(Guard(allow_http=True), proxy=through(proxy)) as sender:
        outcome = await sender.send("http://hooks.example/", HEADERS, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("address refused: hooks.example is private")
    assert proxy.requests == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n", "HTTP 403 to CONNECT"),
        (b"HTTP/1.0 407 Who\r\n\r\n", "HTTP 407 to CONNECT"),
        (b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK", "malformed answer to CONNECT"),
        (b"SSH-2.0-server\r\n\r\n", "malformed answer to CONNECT"),
        (b"HTTP/1.1 OK\r\n\r\n", "malformed answer to CONNECT"),
        (b"x" * (HEAD_BYTES_MAX + 1), "malformed answer to CONNECT"),
        (b"HTTP/1.1 200 O", "connection closed without an answer"),
        (b"", "connection closed without an answer"),
    ],
)
async def test_a_proxy_without_a_tunnel_is_the_reason_of_the_attempt(
    answer: bytes, reason: str, receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    async with (
        ConnectProxy(answer) as proxy,
        WebhookSender(ANYTHING, proxy=through(proxy)) as sender,
    ):
        outcome = await sender.send(receiver.url, HEADERS, b"{}")
    assert outcome == Unreachable(f"proxy: {reason}")
    assert received == []


async def test_without_its_proxy_nothing_is_sent(
    receiver: WebhookReceiver, received: list[ReceivedWebhook]
) -> None:
    proxy = EgressProxy("127.0.0.1", free_port())
    async with WebhookSender(ANYTHING, proxy=proxy) as sender:
        outcome = await sender.send(receiver.url, HEADERS, b"{}")
    assert outcome == Unreachable("proxy: connect: Connection refused")
    assert received == []


def test_the_setting_is_the_address_of_a_proxy(tmp_path: Path) -> None:
    loaded = Settings.load({"REWIND_EGRESS_PROXY": "http://me:s3cret@proxy.example:3128"})
    assert loaded.proxy == EgressProxy("proxy.example", 3128, "Basic bWU6czNjcmV0")
    assert "s3cret" not in repr(loaded)
    assert Settings.load({}).proxy is None
    ipv6 = EgressProxy.parse("http://[::1]:3128/")
    assert ipv6 is not None
    assert ipv6.connect_request("::2", 443).startswith(b"CONNECT [::2]:443 HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "url",
    [
        "proxy.example:3128",
        "https://me:s3cret@proxy.example:3128",
        "http://me:s3cret@proxy.example",
        "http://me:s3cret@proxy.example:99999",
        "http://me:s3cret@proxy.example:3128/path",
        "http://:3128",
    ],
)
def test_another_text_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed is http://HOST:PORT") as refused:
        Settings.load({"REWIND_EGRESS_PROXY": url})
    assert "s3cret" not in str(refused.value)
