"""Old replays are deleted with all their rows, and expired previous secrets are erased."""

from collections import Counter
from collections.abc import Iterator

import pytest
from sqlalchemy import Connection, Table, func, select, update

from app.domain.account_notices import NewNoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import (
    Claim,
    Counts,
    Failure,
    Lease,
    NewReplay,
    NewWebhook,
    OffsetRange,
    Webhook,
    Window,
)
from app.store import ReplayNotFound, Store, retention
from app.store.engine import Database
from app.store.notice_tables import notice_endpoints
from app.store.tables import metadata, replays, webhooks
from app.webhooks.signing import new_secret
from tests.support.database.fixtures import BOTH

DAY_MS = 86_400_000
WINDOW = Window(1_000, 2_000)
OFFSETS = OffsetRange(3, 100, 200)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


def failure(offset: int) -> Failure:
    return Failure(offset, f"event-{offset}", 6, 500, "status 500")


def end(store: Store, lease: Lease, failures: int = 3) -> str:
    """Complete a replay with `failures`, and return its id."""
    assert store.begin_delivery(lease, OFFSETS)
    counts = Counts(97, 0, failures)
    assert store.checkpoint(lease, 200, counts, list(map(failure, range(100, 100 + failures))))
    assert store.complete(lease)
    return lease.replay_id


def next_ended(store: Store, webhook: Webhook, retry_of: str | None = None) -> str:
    store.create_replay(NewReplay(webhook.id, WINDOW, retry_of=retry_of))
    claim = store.claim("one", 3_600)
    assert claim is not None
    return end(store, claim.lease)


def age(database: Database, *replay_ids: str, days: int = 91) -> None:
    """Let the replays have ended `days` ago, with their notifications sent."""
    values = {"finished_ms": replays.c.finished_ms - days * DAY_MS, "notice_due_ms": None}
    statement = update(replays).where(replays.c.id.in_(replay_ids)).values(values)
    database.write(lambda connection: connection.execute(statement))


def rows_of(database: Database, replay_id: str) -> dict[str, int]:
    """The number of rows that refer to the replay, by table."""

    def count(connection: Connection, table: Table) -> int:
        query = select(func.count()).select_from(table).where(table.c.replay_id == replay_id)
        return connection.execute(query).scalar_one()

    return {table.name: database.read(count, table) for table in retention.CHILD_TABLES}


def delete_all(store: Store, kept_days: int = 90) -> Counter[str]:
    total: Counter[str] = Counter()
    while deleted := store.delete_old_replays(kept_days * DAY_MS):
        total.update(deleted)
    return total


def test_an_old_replay_is_deleted_with_its_failures_moves_and_samples(
    store: Store, claimed: Claim, webhook: Webhook, database: Database
) -> None:
    old = end(store, claimed.lease)
    recent = next_ended(store, webhook)
    age(database, old)
    age(database, recent, days=89)
    expected = rows_of(database, old)
    assert min(expected.values()) > 0
    assert delete_all(store) == {**expected, "replays": 1}
    assert set(rows_of(database, old).values()) == {0}
    with pytest.raises(ReplayNotFound):
        store.replay(old)
    assert len(store.failures(recent).items) == 3
    assert delete_all(store) == {}


def test_every_table_that_refers_to_replays_is_covered() -> None:
    """The order of a replay's rows needs the rest of the primary key, or an id."""
    names = {
        table.name
        for table in metadata.tables.values()
        if any(key.column.table is replays for key in table.foreign_keys)
    }
    assert {table.name for table in retention.CHILD_TABLES} == names
    assert {"replay_failures", "replay_moves", "replay_samples"} <= names
    for table in retention.CHILD_TABLES:
        order = retention._order_within_replay(table)
        indexes = [list(index.columns.keys()) for index in table.indexes]
        assert ["replay_id", order.name] in [*indexes, list(table.primary_key.columns.keys())]


def test_an_active_replay_is_kept_however_old_it_is(
    store: Store, claimed: Claim, database: Database
) -> None:
    created_ms = replays.c.created_ms - 1_000 * DAY_MS
    database.write(lambda db: db.execute(update(replays).values(created_ms=created_ms)))
    assert delete_all(store) == {}
    assert store.replay(claimed.replay.id).id == claimed.replay.id


def test_a_replay_whose_notification_is_due_is_kept(
    store: Store, claimed: Claim, database: Database
) -> None:
    old = end(store, claimed.lease)
    finished_ms = replays.c.finished_ms - 91 * DAY_MS
    database.write(lambda db: db.execute(update(replays).values(finished_ms=finished_ms)))
    assert delete_all(store) == {}
    assert store.replay(old).id == old


def test_a_replay_is_kept_while_its_failures_are_retried(
    store: Store, claimed: Claim, webhook: Webhook, database: Database
) -> None:
    old = end(store, claimed.lease)
    age(database, old)
    retry, _ = store.create_replay(NewReplay(webhook.id, WINDOW, retry_of=old))
    assert delete_all(store) == {}
    assert store.failed_offsets(old, 0, 10) == (100, 101, 102)
    store.cancel_replay(retry.id)
    assert delete_all(store)["replays"] == 1


def test_many_rows_are_deleted_in_portions_and_the_replay_last(
    store: Store, claimed: Claim, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_CALL", 4)
    old = end(store, claimed.lease, failures=10)
    age(database, old)
    calls = []
    while deleted := store.delete_old_replays(90 * DAY_MS):
        calls.append((deleted.get("replay_failures", 0), deleted.get("replays", 0)))
    assert calls == [(4, 0), (4, 0), (2, 1)]


def test_portions_cover_several_replays(
    store: Store,
    claimed: Claim,
    webhook: Webhook,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retention, "ROWS_PER_CALL", 4)
    monkeypatch.setattr(retention, "REPLAYS_PER_CALL", 2)
    old = [end(store, claimed.lease), *(next_ended(store, webhook) for _ in range(4))]
    age(database, *old)
    deleted = delete_all(store)
    assert (deleted["replays"], deleted["replay_failures"]) == (5, 15)


# A writer of SQLite waits for the other one.
@pytest.mark.parametrize("migrated_url", BOTH[1:], indirect=True)
def test_rows_that_another_process_deletes_are_skipped(
    store: Store, claimed: Claim, database: Database
) -> None:
    old = end(store, claimed.lease)
    age(database, old)

    def while_locked(connection: Connection) -> None:
        connection.execute(select(replays.c.id).where(replays.c.id == old).with_for_update())
        assert delete_all(store) == {}

    database.write(while_locked)
    assert delete_all(store)["replays"] == 1


def previous_secrets(database: Database) -> list[tuple[str | None, int | None]]:
    query = select(webhooks.c.previous_secret, webhooks.c.previous_secret_until_ms)
    return database.read(lambda db: [(row[0], row[1]) for row in db.execute(query)])


def test_a_previous_secret_is_erased_after_its_grace_period(
    store: Store, webhook: Webhook, database: Database
) -> None:
    other = store.create_webhook(NewWebhook("https://example.com/other", "", new_secret()))
    store.rotate_secret(webhook.id, new_secret(), 60_000)
    store.rotate_secret(other.id, new_secret(), 60_000)
    assert store.erase_expired_secrets() == 0
    expired = update(webhooks).where(webhooks.c.id == webhook.id)
    until_ms = webhooks.c.previous_secret_until_ms - 60_000
    database.write(lambda db: db.execute(expired.values(previous_secret_until_ms=until_ms)))
    revision = store.routing_changes(0).revision
    assert store.erase_expired_secrets() == 1
    assert store.erase_expired_secrets() == 0
    assert previous_secrets(database).count((None, None)) == 1
    assert store.webhook(other.id).previous_secret is not None
    assert store.routing_changes(0).revision == revision


def test_a_previous_secret_of_a_notice_endpoint_is_erased_too(store: Store) -> None:
    new = NewNoticeEndpoint(DEFAULT_ACCOUNT, "https://example.com/n", "", new_secret())
    endpoint = store.create_notice_endpoint(new)
    store.rotate_notice_secret(endpoint.id, new_secret(), 60_000)
    assert store.erase_expired_secrets() == 0
    expired = update(notice_endpoints).values(previous_secret_until_ms=1)
    store.database.write(lambda connection: connection.execute(expired))
    assert store.erase_expired_secrets() == 1
    found = store.notice_endpoint(endpoint.id)
    assert (found.previous_secret, found.previous_secret_until_ms) == (None, None)
