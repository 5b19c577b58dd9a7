"""TLS with generated certificates: trust and host names."""

import asyncio
import socket
import ssl
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from app.domain.delivery import Delivered, Unreachable
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.receiver import WebhookReceiver
from app.webhooks.sender import WebhookSender
from tests.support.http.certificates import CertificateFiles, self_signed
from tests.support.processes.waiting import until_async
from tests.unit.app.webhooks.faulty_peer import HOST, Behaviour, FaultyPeer, hang
from tests.unit.app.webhooks.scripted_peer import ScriptedPeer

pytestmark = pytest.mark.anyio

HEADERS = {"webhook-id": "evt_1"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    """A self-signed certificate of hooks.example and 127.0.0.2."""
    return self_signed(tmp_path_factory.mktemp("tls"), "hooks.example", "127.0.0.2")


@pytest.fixture
def names_asked_for() -> list[str]:
    return []


@pytest.fixture
async def receiver(
    certificate: CertificateFiles, names_asked_for: list[str]
) -> AsyncIterator[WebhookReceiver]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.both)
    context.sni_callback = lambda _socket, name, _context: names_asked_for.append(name)
    receiver = WebhookReceiver("0.0.0.0", tls=context)
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def trusting(certificate: CertificateFiles) -> AsyncIterator[WebhookSender]:
    context = ssl.create_default_context(cafile=certificate.certificate)
    async with WebhookSender(Guard(allow_private=True), tls=context) as sender:
        yield sender


async def test_a_trusted_receiver_gets_webhooks_and_its_server_name(
    resolve: Callable[..., None],
    receiver: WebhookReceiver,
    trusting: WebhookSender,
    names_asked_for: list[str],
) -> None:
    resolve("hooks.example", "127.0.0.1")
    for _ in range(3):
        outcome = await trusting.send(f"https://hooks.example:{receiver.port}/", HEADERS, b"{}")
        assert outcome == Delivered(204)
    assert names_asked_for == ["hooks.example"], "one handshake, with the URL's name"


async def test_a_certificate_can_be_for_an_address(
    receiver: WebhookReceiver, trusting: WebhookSender
) -> None:
    outcome = await trusting.send(f"https://127.0.0.2:{receiver.port}/", HEADERS, b"{}")
    assert outcome == Delivered(204)


async def test_a_certificate_of_another_name_is_not_trusted(
    resolve: Callable[..., None], receiver: WebhookReceiver, trusting: WebhookSender
) -> None:
    resolve("other.example", "127.0.0.1")
    outcome = await trusting.send(f"https://other.example:{receiver.port}/", HEADERS, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("tls: Hostname mismatch")


async def test_a_self_signed_certificate_is_not_trusted(
    resolve: Callable[..., None], receiver: WebhookReceiver
) -> None:
    resolve("hooks.example", "127.0.0.1")
    async with WebhookSender(Guard(allow_private=True)) as sender:
        outcome = await sender.send(f"https://hooks.example:{receiver.port}/", HEADERS, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("tls: self")


async def test_authorities_of_the_machine_are_loaded_for_the_first_https_url(
    resolve: Callable[..., None],
    receiver: WebhookReceiver,
    certificate: CertificateFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    resolve("hooks.example", "127.0.0.1")
    async with WebhookSender(Guard(allow_private=True)) as sender:
        # Authorities that the sender had loaded at its start would not include this one.
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate.certificate))
        url = f"https://hooks.example:{receiver.port}/"
        sent = await asyncio.gather(*(sender.send(url, HEADERS, b"{}") for _ in range(3)))
    assert sent == [Delivered(204)] * 3


async def test_a_receiver_without_tls_is_unreachable(trusting: WebhookSender) -> None:
    plain = WebhookReceiver()
    await plain.start()
    outcome = await trusting.send(f"https://127.0.0.1:{plain.port}/", HEADERS, b"{}")
    await plain.stop()
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("tls: ")


async def test_an_endless_handshake_times_out(certificate: CertificateFiles) -> None:
    limits = SenderLimits(connect_s=0.05)
    context = ssl.create_default_context(cafile=certificate.certificate)
    async with (
        WebhookSender(Guard(allow_private=True), limits, context) as sender,
        ScriptedPeer([[b""]]) as peer,
    ):
        url = f"https://127.0.0.1:{peer.port}/"
        outcome = await peer.reached_by(lambda: sender.send(url, HEADERS, b"{}"))
        assert isinstance(outcome, Unreachable)
        assert outcome.reason.startswith("timeout: no connection")
        await peer.closed_by_sender.wait()


def context_of(certificate: CertificateFiles) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate.both)
    return context


async def reason_of(sender: WebhookSender, url: str) -> str:
    outcome = await sender.send(url, HEADERS, b"{}")
    assert isinstance(outcome, Unreachable)
    return outcome.reason


@pytest.fixture
def expired_certificate(tmp_path: Path) -> CertificateFiles:
    """A self-signed certificate of a faulty peer that expired yesterday."""
    return self_signed(tmp_path, HOST, expired=True)


async def test_an_expired_certificate_is_not_trusted(
    expired_certificate: CertificateFiles,
) -> None:
    trusting = ssl.create_default_context(cafile=expired_certificate.certificate)
    async with (
        WebhookSender(Guard(allow_private=True), tls=trusting) as sender,
        FaultyPeer(hang(), context_of(expired_certificate)) as peer,
    ):
        assert await reason_of(sender, peer.url) == "tls: certificate has expired"


async def test_a_receiver_with_only_tls_1_0_is_unreachable(certificate: CertificateFiles) -> None:
    context = context_of(certificate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
    # OpenSSL itself would not speak it otherwise, and nothing would be tested.
    context.set_ciphers("ALL:@SECLEVEL=0")

    def refuse() -> None:
        connection, _ = listener.accept()
        with connection, pytest.raises(ssl.SSLError, match="UNSUPPORTED_PROTOCOL"):
            context.wrap_socket(connection, server_side=True)

    # No server of asyncio's: that one closes before its alert is out.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        refusing = asyncio.create_task(asyncio.to_thread(refuse))
        async with WebhookSender(Guard(allow_private=True)) as sender:
            reason = await reason_of(sender, f"https://127.0.0.1:{listener.getsockname()[1]}/")
        await refusing
    assert reason == "tls: TLSV1_ALERT_PROTOCOL_VERSION"


def handshake_with(answer: bytes, *, hangs: bool) -> Behaviour:
    """Respond to the first bytes of a handshake with `answer`, then hang or close."""

    async def behave(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(2**16)
        writer.write(answer)
        if hangs:
            await hang()(reader, writer)

    return behave


HALF_A_RECORD = b"\x16\x03\x03\x00\x7a\x02\x00\x00\x76\x03\x03"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "tls: connection closed during the handshake"),
        (HALF_A_RECORD, "tls: connection closed during the handshake"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "tls: "),
        (
            b"\x15\x03\x03\x00\x02\x02\x28",
            "tls: SSLV3_ALERT_HANDSHAKE_FAILURE",
        ),  # the alert handshake_failure
    ],
    ids=["nothing", "half a record", "no tls", "alert"],
)
async def test_an_aborted_handshake_is_unreachable(answer: bytes, reason: str) -> None:
    async with (
        WebhookSender(Guard(allow_private=True)) as sender,
        FaultyPeer(handshake_with(answer, hangs=False)) as peer,
    ):
        found = await reason_of(sender, peer.url.replace("http:", "https:"))
    assert found.startswith(reason)


async def test_a_handshake_that_hangs_midway_times_out() -> None:
    limits = SenderLimits(connect_s=0.05)
    async with (
        WebhookSender(Guard(allow_private=True), limits) as sender,
        FaultyPeer(handshake_with(HALF_A_RECORD, hangs=True)) as peer,
    ):
        found = await reason_of(sender, peer.url.replace("http:", "https:"))
        assert found.startswith("timeout: no connection")
        await until_async(lambda: peer.is_left_alone, "the sender closes the connection")


async def test_a_tls_connection_aborted_without_close_notify_is_one_attempt(
    certificate: CertificateFiles,
) -> None:
    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    trusting = ssl.create_default_context(cafile=certificate.certificate)
    trusting.check_hostname = False
    async with (
        WebhookSender(Guard(allow_private=True), tls=trusting) as sender,
        FaultyPeer(cut, context_of(certificate)) as peer,
    ):
        assert (await reason_of(sender, peer.url)).startswith("reset: ")
        assert peer.connections == 1
