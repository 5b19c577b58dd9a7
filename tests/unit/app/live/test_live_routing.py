"""The routing table of a live process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import create_engine, text

from app.domain.grants import Grant
from app.domain.model import NewWebhook, Webhook, WebhookStatus
from app.domain.rules import Rule
from app.live.routing import RoutingTable
from app.store import Store
from app.webhooks.signing import new_secret


def webhook_of(store: Store, name: str) -> Webhook:
    return store.create_webhook(NewWebhook(f"https://{name}.example/hook", name, new_secret()))


@contextmanager
def locked(database_url: str) -> Iterator[None]:
    """Let queries of webhooks wait, on MariaDB."""
    engine = create_engine(database_url)
    with engine.connect() as connection:
        connection.execute(text("LOCK TABLES webhooks WRITE"))
        yield
        connection.execute(text("UNLOCK TABLES"))
    engine.dispose()


def with_table(store: Store, work: Callable[[RoutingTable], Awaitable[None]]) -> None:
    async def run() -> None:
        table = RoutingTable(store)
        await table.refresh()
        await work(table)

    asyncio.run(run())


def test_the_table_loads_everything_and_applies_every_change(store: Store) -> None:
    first, second = webhook_of(store, "first"), webhook_of(store, "second")
    store.put_rule(Rule(first.id, "default", ("*",)))
    store.put_rule(Rule(second.id, "default", ("a.*",), (("data.userId", "42"),)))

    async def work(table: RoutingTable) -> None:
        wanted = b'{"data": {"userId": "42"}}'
        assert (table.webhook_count, table.rule_count) == (2, 2)
        assert table.match("a.b", wanted) == sorted([first.id, second.id])
        store.put_rule(Rule(first.id, "default", ("c.*",)))
        store.disable_webhook(second.id, "for a test")
        await table.refresh()
        disabled = table.webhook(second.id)
        assert disabled is not None
        assert disabled.status is WebhookStatus.DISABLED
        # A webhook that is not enabled has its events logged all the same.
        assert table.match("a.b", wanted) == [second.id]
        store.delete_rule(second.id, "default")
        await table.refresh()
        assert table.match("a.b", wanted) == []
        store.delete_webhook(first.id)
        await table.refresh()
        assert table.webhook(first.id) is None
        assert (table.webhook_count, table.rule_count) == (1, 0)
        assert table.match("c.d", b"") == []

    with_table(store, work)


def test_webhooks_of_an_account_receive_only_what_its_grants_cover(store: Store) -> None:
    account = store.create_account("acme")
    granted = store.create_webhook(
        NewWebhook("https://acme.example/hook", "", new_secret(), account.id), event_types=["*"]
    )
    private = webhook_of(store, "default")
    store.put_rule(Rule(private.id, "default", ("dm.sent",)))
    wanted, other = b'{"data": {"userId": "42"}}', b'{"data": {"userId": "43"}}'

    async def work(table: RoutingTable) -> None:
        # It has no grant, so its rule for all events matches nothing.
        assert table.match("dm.sent", wanted) == [private.id]
        where = (("data.userId", "42"),)
        store.put_grant(Grant(account.id, "user-42", ("dm.*",), where))
        await table.refresh()
        assert table.match("dm.sent", wanted) == sorted([granted.id, private.id])
        assert table.match("dm.sent", other) == [private.id]
        assert table.match("follow.created", wanted) == []
        store.delete_grant(account.id, "user-42")
        await table.refresh()
        assert table.match("dm.sent", wanted) == [private.id]

    with_table(store, work)


def test_an_event_for_an_account_needs_no_grant_and_reaches_no_other(store: Store) -> None:
    account = store.create_account("acme")
    mine = store.create_webhook(
        NewWebhook("https://acme.example/hook", "", new_secret(), account.id), event_types=["dm.*"]
    )
    other = webhook_of(store, "default")
    store.put_rule(Rule(other.id, "default", ("*",)))

    async def work(table: RoutingTable) -> None:
        assert table.match("dm.sent", b"{}", account.id) == [mine.id]
        assert table.match("follow.created", b"{}", account.id) == []
        assert table.match("dm.sent", b"{}", other.account_id) == [other.id]
        assert table.match("dm.sent", b"{}", "") == []
        assert table.match("dm.sent", b"{}", "acc_none") == []

    with_table(store, work)


def test_a_restored_backup_replaces_the_grants(store: Store) -> None:
    account = store.create_account("acme")
    webhook = store.create_webhook(
        NewWebhook("https://acme.example/hook", "", new_secret(), account.id), event_types=["*"]
    )
    store.put_grant(Grant(account.id, "all", ("*",)))

    async def work(table: RoutingTable) -> None:
        assert table.match("x", b"{}") == [webhook.id]
        store.delete_grant(account.id, "all")
        table._revision = 1_000_000
        await table.refresh()
        assert table.match("x", b"{}") == []

    with_table(store, work)


def test_after_a_refresh_the_table_has_what_was_stored_before(store: Store) -> None:
    async def work(table: RoutingTable) -> None:
        running = asyncio.create_task(table.run())
        for number in range(5):
            webhook = await asyncio.to_thread(webhook_of, store, f"number-{number}")
            await table.wait_until_refreshed()
            assert table.webhook(webhook.id) == webhook
        running.cancel()

    with_table(store, work)


@pytest.mark.processes
@pytest.mark.parametrize("migrated_url", ["mariadb"], indirect=True)
def test_a_database_that_takes_seconds_to_answer_delays_a_refresh(
    store: Store, migrated_url: str
) -> None:
    async def work(table: RoutingTable) -> None:
        running = asyncio.create_task(table.run())
        await table.wait_until_refreshed()
        webhook = await asyncio.to_thread(webhook_of, store, "first")
        with locked(migrated_url):
            waiting = asyncio.create_task(table.wait_until_refreshed())
            await asyncio.wait([waiting], timeout=2.5)
        await waiting
        assert table.webhook(webhook.id) == webhook
        running.cancel()

    with_table(store, work)


def test_without_a_database_the_table_is_unchanged_and_reports_its_age(store: Store) -> None:
    webhook = webhook_of(store, "first")
    nowhere = Store.open("mysql+pymysql://root@127.0.0.1:1/nowhere")

    async def work(table: RoutingTable) -> None:
        fresh_s = table.age_s
        table._store = nowhere
        running = asyncio.create_task(table.run())
        await table.wait_until_refreshed()
        await table.wait_until_refreshed()
        assert table.webhook(webhook.id) == webhook
        assert table.age_s > fresh_s
        running.cancel()

    with_table(store, work)
