"""The data version of a database, by which polls see that nothing was committed."""

from contextlib import closing

import pytest

from app.domain.deliveries import DeliveryPlace
from app.domain.model import NewWebhook, Webhook
from app.domain.resends import NewResend
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.migrated import reused_store_at

SQLITE = pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)


def create_webhook(store: Store) -> None:
    store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))


@SQLITE
def test_the_data_version_changes_with_the_commits_of_every_connection(
    store: Store, database_url: str
) -> None:
    version = store.database.data_version()
    assert version is not None
    store.webhooks()
    assert store.database.data_version() == version
    with closing(reused_store_at(database_url)) as other:
        seen = {version}
        for writer in (store, other):
            create_webhook(writer)
            assert store.database.data_version() not in seen
            seen.add(store.database.data_version() or 0)


@SQLITE
def test_the_data_version_is_read_again_after_a_close(store: Store) -> None:
    assert store.database.data_version() is not None
    store.database.close()
    assert store.database.data_version() is not None


@pytest.mark.processes
@pytest.mark.parametrize("migrated_url", ["mariadb"], indirect=True)
def test_mariadb_has_no_data_version(store: Store) -> None:
    assert store.database.data_version() is None


def test_an_unavailable_database_has_no_data_version() -> None:
    with closing(Store.open("sqlite:////nowhere/rewind.db")) as store:
        assert store.database.data_version() is None


def test_a_pending_resend_is_work_of_its_data_centre_only(store: Store, webhook: Webhook) -> None:
    store.enable_webhook(webhook.id, webhook.url)
    assert not store.is_any_work_waiting("here")
    store.create_resends(webhook.id, [NewResend(DeliveryPlace("here", 0, 7), "evt_7")])
    assert store.is_any_work_waiting("here")
    assert not store.is_any_work_waiting("there")
