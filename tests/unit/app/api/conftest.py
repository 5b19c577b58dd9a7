"""The real application on a real SQLite file, asked without a network; its log is down.

Webhooks may live on loopback, where `receiver` is. There are an operator and two developers, each
with an account and a key; `client` shows the operator's.
"""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from api_clients import Issued, client_of
from fastapi import FastAPI
from receiver_thread import ReceiverThread

from app.api.application import create_app
from app.config import Settings
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.replay.accounts import Scope
from app.replay.model import NewWebhook, Webhook
from app.store import Store, migrate
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path, bootstrap_servers=f"127.0.0.1:{_closed_port()}")


def _closed_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def store(settings: Settings) -> Iterator[Store]:
    migrate(settings.database)
    with closing(Store.open(settings.database)) as store:
        yield store


@pytest.fixture
def operator(store: Store) -> Issued:
    return store.create_key("platform", Scope.OPERATOR, "")


@pytest.fixture
def developer(store: Store) -> Issued:
    return store.create_key("alice", Scope.DEVELOPER, "")


@pytest.fixture
def other_developer(store: Store) -> Issued:
    return store.create_key("bob", Scope.DEVELOPER, "")


@pytest.fixture
def webhook(store: Store, developer: Issued) -> Webhook:
    """A webhook of the developer, ENABLED."""
    key, _ = developer
    new = NewWebhook("https://example.com/hooks", "billing", new_secret(), key.account.id)
    webhook = store.create_webhook(new)
    return store.enable_webhook(webhook.id, webhook.url)


@pytest.fixture
def receiver() -> Iterator[ReceiverThread]:
    with ReceiverThread() as receiver:
        yield receiver


@pytest.fixture
def guard() -> Guard:
    return Guard(allow_private=True)


@pytest.fixture
async def application(settings: Settings, store: Store, guard: Guard) -> AsyncIterator[FastAPI]:
    history = LogHistory(settings.bootstrap_servers, timeout_s=0.2)
    publisher = EventPublisher(
        settings.bootstrap_servers, origin="here", server="test", delivery_timeout_s=0.5
    )
    async with publisher, WebhookSender(guard) as sender:
        yield create_app(settings, store, publisher, history, guard, sender)


@pytest.fixture
async def client(application: FastAPI, operator: Issued) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(application, operator) as client:
        yield client


@pytest.fixture
async def developers_client(
    application: FastAPI, developer: Issued
) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(application, developer) as client:
        yield client


@pytest.fixture
async def others_client(
    application: FastAPI, other_developer: Issued
) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(application, other_developer) as client:
        yield client


@pytest.fixture
async def anonymous(application: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(application, None) as client:
        yield client
