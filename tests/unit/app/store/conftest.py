"""Every test of the store runs on both databases: SQLite in a file, and a real MariaDB."""

from collections.abc import Iterator

import pytest

from app.replay.model import Claim, NewReplay, NewWebhook, Webhook, Window
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated

WINDOW = Window(1_000, 2_000)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    make_migrated(database_url)
    opened = Store.open(database_url)
    yield opened
    opened.close()


@pytest.fixture
def webhook(store: Store) -> Webhook:
    return store.create_webhook(NewWebhook("https://example.com/hook", "orders", new_secret()))


@pytest.fixture
def claimed(store: Store, webhook: Webhook) -> Claim:
    """A replay that worker "one" holds for an hour."""
    store.create_replay(NewReplay(webhook.id, WINDOW))
    claim = store.claim("one", 3_600)
    assert claim is not None
    return claim
