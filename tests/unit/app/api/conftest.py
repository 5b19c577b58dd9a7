"""The real application on a SQLite file, called without a network; its log is down.

Webhooks may live on loopback, where `receiver` is. There are an operator and two developers, each
with an account and a key; `client` shows the operator's.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from app.api.application import create_app
from app.config import Settings
from app.domain.model import NewWebhook, Webhook
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.services.metrics import ApiMetrics
from app.services.services import Services
from app.store import Store
from app.webhooks.guard import Guard
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from tests.support.database.migrated import DEVELOPERS, OPERATOR, ReusedStore
from tests.support.http.api_clients import Issued, client_of
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
        application = create_app(
            Services.of(settings, store, publisher, history, guard, sender, ApiMetrics())
        )
        application.openapi = partial(_description, application.openapi)  # type: ignore[method-assign]
        yield application


_descriptions: list[dict[str, Any]] = []


def _description(describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The OpenAPI document of the first application; all have the same one, which takes 0.2 s."""
    if not _descriptions:
        _descriptions.append(describe())
    return _descriptions[0]


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
