"""TLS with certificates made for the test: who is trusted, and by which name."""

import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from scripted_peer import ScriptedPeer

from app.replay.delivery import Delivered, Unreachable
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.receiver import WebhookReceiver
from app.webhooks.sender import WebhookSender

pytestmark = pytest.mark.anyio

HEADERS = {"webhook-id": "evt_1"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of hooks.example and 127.0.0.2; its key lies beside it."""
    path = tmp_path_factory.mktemp("tls") / "hooks.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    subject = "-subj /CN=hooks.example -addext subjectAltName=DNS:hooks.example,IP:127.0.0.2"
    files = ["-keyout", path.with_suffix(".key"), "-out", path]
    subprocess.run([*command.split(), *subject.split(), *files], check=True, capture_output=True)
    return path


@pytest.fixture
def names_asked_for() -> list[str]:
    return []


@pytest.fixture
async def receiver(certificate: Path, names_asked_for: list[str]) -> AsyncIterator[WebhookReceiver]:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    context.sni_callback = lambda _socket, name, _context: names_asked_for.append(name)
    receiver = WebhookReceiver("0.0.0.0", tls=context)
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def trusting(certificate: Path) -> AsyncIterator[WebhookSender]:
    context = ssl.create_default_context(cafile=str(certificate))
    async with WebhookSender(Guard(allow_private=True), tls=context) as sender:
        yield sender


async def test_a_trusted_receiver_gets_its_webhooks_and_its_name(
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


async def test_a_certificate_may_name_an_address(
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


async def test_a_certificate_that_nobody_vouches_for_is_not_trusted(
    resolve: Callable[..., None], receiver: WebhookReceiver
) -> None:
    resolve("hooks.example", "127.0.0.1")
    async with WebhookSender(Guard(allow_private=True)) as sender:
        outcome = await sender.send(f"https://hooks.example:{receiver.port}/", HEADERS, b"{}")
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("tls: self")


async def test_a_receiver_that_speaks_no_tls_is_unreachable(trusting: WebhookSender) -> None:
    plain = WebhookReceiver()
    await plain.start()
    outcome = await trusting.send(f"https://127.0.0.1:{plain.port}/", HEADERS, b"{}")
    await plain.stop()
    assert isinstance(outcome, Unreachable)
    assert outcome.reason.startswith("tls: ")


async def test_a_handshake_that_does_not_end_is_left_in_time() -> None:
    limits = SenderLimits(connect_s=0.05)
    async with (
        WebhookSender(Guard(allow_private=True), limits) as sender,
        ScriptedPeer([[b""]]) as peer,
    ):
        outcome = await sender.send(f"https://127.0.0.1:{peer.port}/", HEADERS, b"{}")
        assert isinstance(outcome, Unreachable)
        assert outcome.reason.startswith("timeout: no connection")
        await peer.closed_by_sender.wait()
