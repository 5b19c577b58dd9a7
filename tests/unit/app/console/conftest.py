"""The console with the real API on a SQLite file, without a broker.

Webhooks may have loopback URLs, as `receiver` has. There are signed-in clients for an operator, two
developers with an account each, and a read-only key.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from app.api.application import create_app
from app.config import Settings
from app.domain.accounts import Scope
from app.domain.model import Webhook
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.services.metrics import ApiMetrics
from app.services.services import Services
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from tests.support.database.api_keys import issue_key
from tests.support.database.migrated import DEVELOPERS, OPERATOR, ReusedStore
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient, enabled_webhook
from tests.support.http.receiver_thread import ReceiverThread


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def settings(tmp_path: Path, reused_store: ReusedStore, refused_address: str) -> Settings:
    return Settings(data_dir=tmp_path, database=reused_store.url, bootstrap_servers=refused_address)


@pytest.fixture
def store(reused_store: ReusedStore) -> Iterator[Store]:
    with reused_store.one_with_keys() as store:
        yield store


@pytest.fixture
def operator(store: Store, reused_store: ReusedStore) -> Issued:
    return reused_store.keys[OPERATOR]


@pytest.fixture
def developer(store: Store, reused_store: ReusedStore) -> Issued:
    return reused_store.keys[DEVELOPERS[0]]


@pytest.fixture
def other_developer(store: Store, reused_store: ReusedStore) -> Issued:
    return reused_store.keys[DEVELOPERS[1]]


@pytest.fixture
def reader(store: Store) -> Issued:
    """Create a read-only operator key."""
    return issue_key(store, OPERATOR, Scope.OPERATOR, is_read_only=True)


@pytest.fixture
def webhook(store: Store, developer: Issued) -> Webhook:
    """Create an ENABLED webhook of the developer."""
    return enabled_webhook(store, developer)


@pytest.fixture
def others_webhook(store: Store, other_developer: Issued) -> Webhook:
    """Create an ENABLED webhook of the other developer."""
    return enabled_webhook(store, other_developer)


@pytest.fixture
def receiver() -> Iterator[ReceiverThread]:
    with ReceiverThread() as receiver:
        yield receiver


@pytest.fixture
def guard() -> Guard:
    return Guard(allow_private=True)


@pytest.fixture
def log_timeout_s() -> float:
    """Return a short timeout: there is no broker."""
    return 0.02


@pytest.fixture
async def application(
    settings: Settings, store: Store, guard: Guard, log_timeout_s: float
) -> AsyncIterator[FastAPI]:
    """Yield the API. Clients add the console."""
    history = LogHistory(settings.bootstrap_servers, timeout_s=log_timeout_s)
    publisher = EventPublisher(
        settings.bootstrap_servers, origin="here", server="test", delivery_timeout_s=0.5
    )
    async with publisher, WebhookSender(guard) as sender:
        yield create_app(
            Services.of(settings, store, publisher, history, guard, sender, ApiMetrics())
        )


@pytest.fixture
async def client(application: FastAPI, operator: Issued) -> AsyncIterator[ConsoleClient]:
    """Yield a client of the operator."""
    async with ConsoleClient(application, operator) as client:
        yield client


@pytest.fixture
async def developers_client(
    application: FastAPI, developer: Issued
) -> AsyncIterator[ConsoleClient]:
    async with ConsoleClient(application, developer) as client:
        yield client


@pytest.fixture
async def others_client(
    application: FastAPI, other_developer: Issued
) -> AsyncIterator[ConsoleClient]:
    async with ConsoleClient(application, other_developer) as client:
        yield client


@pytest.fixture
async def readers_client(application: FastAPI, reader: Issued) -> AsyncIterator[ConsoleClient]:
    async with ConsoleClient(application, reader) as client:
        yield client


@pytest.fixture
async def anonymous(application: FastAPI) -> AsyncIterator[ConsoleClient]:
    async with ConsoleClient(application, None) as client:
        yield client
