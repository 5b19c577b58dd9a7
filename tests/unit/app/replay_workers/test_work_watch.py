"""What an idle worker knows of a database in which nothing is committed."""

import asyncio
from contextlib import closing

import pytest

from app.domain.model import NewReplay, NewWebhook, Window
from app.replay_workers.work_watch import WorkWatch
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.database.migrated import ReusedStore


def test_a_replay_is_work_also_while_a_worker_holds_it(reused_store: ReusedStore) -> None:
    async def scenario(store: Store) -> None:
        watch = WorkWatch(store, "here")
        assert await watch.is_idle()
        webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        store.enable_webhook(webhook.id, webhook.url)
        assert await watch.is_idle()
        store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))
        assert not await watch.is_idle()
        assert store.claim("worker-1", 60, "here") is not None
        # Its lease may expire, which no commit announces.
        assert not await watch.is_idle()

    with reused_store.one() as store:
        asyncio.run(scenario(store))


def test_an_idle_database_is_queried_again_only_after_a_commit(
    reused_store: ReusedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = 0

    async def scenario(store: Store) -> None:
        nonlocal queries
        watch = WorkWatch(store, "here")
        query = store.is_any_work_waiting

        def count(origin: str) -> bool:
            nonlocal queries
            queries += 1
            return query(origin)

        monkeypatch.setattr(store, "is_any_work_waiting", count)
        for _ in range(3):
            assert await watch.is_idle()
        assert queries == 1
        store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        for _ in range(3):
            assert await watch.is_idle()
        assert queries == 2

    with reused_store.one() as store:
        asyncio.run(scenario(store))


def test_without_a_data_version_every_poll_has_to_query() -> None:
    async def scenario(store: Store) -> None:
        assert not await WorkWatch(store, "here").is_idle()

    with closing(Store.open("mysql+pymysql://root@127.0.0.1:1/nowhere")) as store:
        asyncio.run(scenario(store))
