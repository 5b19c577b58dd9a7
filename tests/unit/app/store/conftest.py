"""Fixtures of the store: each test runs on a SQLite file and on a real MariaDB."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.model import Claim, NewReplay, NewWebhook, Webhook, Window
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.fixtures import BOTH, create_database
from tests.support.database.migrated import reused_store_at

WINDOW = Window(1_000, 2_000)


@pytest.fixture(params=BOTH)
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database without tables."""
    return create_database(request, tmp_path)


@pytest.fixture
def database_url(migrated_url: str) -> str:
    """The database of the store."""
    return migrated_url


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with closing(reused_store_at(database_url)) as store:
        yield store


@pytest.fixture
def webhook(store: Store) -> Webhook:
    return store.create_webhook(NewWebhook("https://example.com/hook", "orders", new_secret()))


@pytest.fixture
def claimed(store: Store, webhook: Webhook) -> Claim:
    """A replay that worker "one" has claimed for an hour."""
    store.create_replay(NewReplay(webhook.id, WINDOW))
    claim = store.claim("one", 3_600)
    assert claim is not None
    return claim
