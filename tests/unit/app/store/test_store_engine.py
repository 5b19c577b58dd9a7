import threading
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, select, text, update

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.store import Store, StoreUnavailable, engine, is_migrated, leases, migrate
from app.store import webhooks as webhooks_table
from app.store.claim_queue import ClaimQueue
from app.store.engine import Database
from app.store.sql import now_ms
from app.store.tables import webhooks
from app.webhooks.signing import new_secret
from tests.support.database.mariadb import MariaDbServer, require_mariadb
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    opened = Database(database_url)
    yield opened
    opened.close()


@pytest.fixture
def mariadb_url(mariadb: MariaDbServer) -> str:
    """An empty database on MariaDB, for tests in which SQLite differs."""
    url = mariadb.create_database()
    migrate(url)
    return url


def test_the_clock_counts_milliseconds_of_utc(database: Database) -> None:
    before_ms = time.time_ns() // 1_000_000
    found_ms = database.read(lambda db: db.scalar(select(now_ms())))
    assert found_ms is not None
    assert before_ms <= found_ms <= time.time_ns() // 1_000_000


def test_the_clock_does_not_depend_on_the_time_zone_of_a_session(mariadb_url: str) -> None:
    def work(db: Connection) -> tuple[int | None, int | None]:
        here = db.scalar(select(now_ms()))
        db.execute(text("SET time_zone = '+09:00'"))
        return here, db.scalar(select(now_ms()))

    database = Database(mariadb_url)
    here_ms, there_ms = database.read(work)
    database.close()
    assert here_ms is not None
    assert there_ms is not None
    assert 0 <= there_ms - here_ms < 3_600_000


def test_autocommit_commits_each_statement_at_once(mariadb_url: str) -> None:
    writer, other = Database(mariadb_url), Database(mariadb_url)
    store = Store.open(mariadb_url)
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))

    def change(db: Connection) -> str:
        db.execute(text("UPDATE webhooks SET description = 'new'"))
        # Even if the writer freezes here, others see the change and are not locked out.
        other.write(lambda them: them.execute(text("UPDATE webhooks SET description = 'newer'")))
        return store.webhook(webhook.id).description

    assert writer.autocommit(change) == "newer"
    assert writer.write(lambda db: db.scalar(text("SELECT @@autocommit"))) == 0
    for each in (writer, other, store):
        each.close()


def test_an_uncommitted_claim_does_not_block_other_claims(mariadb_url: str) -> None:
    store = Store.open(mariadb_url)
    for _ in range(2):
        webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    database = Database(mariadb_url)

    def claim_concurrently(db: Connection) -> set[str]:
        slow = leases.claim_from_queue(db, "slow", 60, ClaimQueue(DEFAULT_ACCOUNT))
        quick = store.claim("quick", 60)
        nothing_left = store.claim("late", 60)
        assert slow is not None
        assert quick is not None
        assert nothing_left is None
        return {slow.replay.id, quick.replay.id}

    assert len(database.write(claim_concurrently)) == 2
    database.close()
    store.close()


def test_a_deadlock_is_retried(mariadb_url: str) -> None:
    store = Store.open(mariadb_url)
    ids = [
        store.create_webhook(NewWebhook("https://example.com/", "", new_secret())).id
        for _ in range(2)
    ]
    store.close()
    database = Database(mariadb_url)
    both_hold_one = threading.Barrier(2)
    attempts: list[str] = []

    def work(db: Connection, order: list[str]) -> None:
        attempts.append(order[0])
        change(db, order[0], order[0])
        if len(attempts) <= 2:
            both_hold_one.wait()
        change(db, order[1], order[0])

    def change(db: Connection, webhook_id: str, by: str) -> None:
        db.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(description=by))

    with ThreadPoolExecutor(2) as threads:
        orders = (ids, ids[::-1])
        list(threads.map(lambda order: database.write(lambda db: work(db, order)), orders))
    found = database.read(lambda db: set(db.scalars(select(webhooks.c.description))))
    database.close()
    assert len(attempts) == 3
    assert found == {attempts[-1]}


def test_a_failed_transaction_is_rolled_back(database: Database, store: Store) -> None:
    def work(db: Connection) -> None:
        db.execute(text("DELETE FROM webhooks"))
        raise LookupError

    kept = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    with pytest.raises(LookupError):
        database.write(work)
    assert store.webhook(kept.id) == kept


def test_a_reader_of_sqlite_does_not_wait_for_a_writer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/folder that is missing/rewind.db"
    migrate(url)
    store = Store.open(url)
    before = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    database = Database(url)

    def read_concurrently(db: Connection) -> Webhook:
        db.execute(update(webhooks).values(description="not committed"))
        return store.webhook(before.id)

    assert database.write(read_concurrently) == before
    assert store.webhook(before.id).description == "not committed"
    database.close()
    store.close()


def test_an_unreachable_database_raises_store_unavailable(tmp_path: Path) -> None:
    for url in (
        f"sqlite:///{tmp_path}/none/rewind.db",
        f"mysql+pymysql://rewind:secret-word@127.0.0.1:{free_port()}/rewind",
    ):
        store = Store.open(url)
        for ask in (store.check, store.webhooks, lambda: store.claim("w", 1)):  # noqa: B023
            with pytest.raises(StoreUnavailable, match="does not answer") as refused:
                ask()
            assert "secret-word" not in str(refused.value)
        with pytest.raises(StoreUnavailable):
            store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        with pytest.raises(StoreUnavailable):
            is_migrated(url)
        store.close()


def test_a_file_that_is_no_database_raises_an_error_and_is_not_changed(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    for content in (b"hi", b"these are notes, no database" * 200):
        file.write_bytes(content)
        url = f"sqlite:///{file}"
        store = Store.open(url)
        for ask in (store.check, store.webhooks, lambda: migrate(url), lambda: is_migrated(url)):  # noqa: B023
            with pytest.raises(StoreUnavailable, match="file is not a database"):
                ask()
        store.close()
        assert file.read_bytes() == content


def test_a_folder_raises_store_unavailable(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailable, match="unable to open database file"):
        migrate(f"sqlite:///{tmp_path}")


@pytest.mark.processes
def test_a_store_works_again_after_an_outage_of_its_database(tmp_path: Path) -> None:
    require_mariadb()
    server = MariaDbServer()
    server.start(tmp_path)
    url = server.create_database()
    migrate(url)
    store = Store.open(url)
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    server.kill()
    with pytest.raises(StoreUnavailable):
        store.webhook(webhook.id)
    server.start(tmp_path)
    # What was acknowledged survived the kill, and the dead connections of the pool are replaced.
    assert store.webhook(webhook.id) == webhook
    store.close()
    server.stop()


def test_a_database_error_contains_no_secret(empty_database_url: str) -> None:
    new = NewWebhook("https://example.com/", "", new_secret())
    database = Database(empty_database_url)
    with pytest.raises(Exception, match="webhooks") as refused:  # its tables are not there
        database.write(lambda db: webhooks_table.insert_webhook(db, new, 1, None))
    database.close()
    message = "".join(traceback.format_exception(refused.value))
    assert "INSERT INTO webhooks" in message
    assert new.secret not in message


def test_a_client_that_freezes_in_a_transaction_loses_its_locks(
    mariadb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "IDLE_S", 1)
    store, frozen = Store.open(mariadb_url), Database(mariadb_url)
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))

    def freeze(db: Connection) -> None:
        assert leases.claim_from_queue(db, "frozen", 60, ClaimQueue(DEFAULT_ACCOUNT)) is not None
        deadline_s = time.monotonic() + DEADLINE_S
        while (claim := store.claim("quick", 60)) is None and time.monotonic() < deadline_s:
            time.sleep(0.05)
        assert claim is not None
        assert claim.replay.id == replay.id

    with pytest.raises(StoreUnavailable):
        frozen.write(freeze)
    frozen.close()
    store.close()
