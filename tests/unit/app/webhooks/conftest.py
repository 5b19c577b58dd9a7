"""A real receiver, a real sender, and DNS names with given addresses."""

import socket
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from app.webhooks.guard import Guard
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.sender import WebhookSender
from tests.support.processes.ports import free_port


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def received() -> list[ReceivedWebhook]:
    return []


@pytest.fixture
async def receiver(received: list[ReceivedWebhook]) -> AsyncIterator[WebhookReceiver]:
    receiver = WebhookReceiver(port=free_port(), on_webhook=received.append)
    await receiver.start()
    yield receiver
    await receiver.stop()


@pytest.fixture
async def sender() -> AsyncIterator[WebhookSender]:
    async with WebhookSender(Guard(allow_private=True)) as sender:
        yield sender


Resolve = Callable[..., None]


@pytest.fixture
def resolve(monkeypatch: pytest.MonkeyPatch) -> Resolve:
    """Sets the addresses of a name, or a function that returns them."""
    real = socket.getaddrinfo
    names: dict[str, Callable[[], Sequence[str]]] = {}

    def getaddrinfo(host: str, port: Any, *args: Any, **options: Any) -> Any:
        if host not in names:
            return real(host, port, *args, **options)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, 0)) for each in names[host]()]

    def let(name: str, *addresses: str, by: Callable[[], Sequence[str]] | None = None) -> None:
        names[name] = by or (lambda: addresses)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return let
