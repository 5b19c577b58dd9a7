"""The real application on a real SQLite file, asked without a network; its log is down."""

import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from app.api.application import create_app
from app.config import Settings
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.replay.model import NewWebhook, Webhook
from app.store import Store, migrate
from app.webhooks.guard import Guard
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
def webhook(store: Store) -> Webhook:
    return store.create_webhook(NewWebhook("https://example.com/hooks", "billing", new_secret()))


@pytest.fixture
async def application(settings: Settings, store: Store) -> AsyncIterator[FastAPI]:
    history = LogHistory(settings.bootstrap_servers, timeout_s=0.2)
    publisher = EventPublisher(
        settings.bootstrap_servers, origin="here", server="test", delivery_timeout_s=0.5
    )
    async with publisher:
        yield create_app(settings, store, publisher, history, Guard())


@pytest.fixture
async def client(application: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(application)
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
        yield client
