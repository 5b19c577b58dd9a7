"""Migrations of a database in use: data is kept, and a killed migration resumes."""

from collections.abc import Iterator

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, Engine, event, text

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.grants import EVERYTHING, Grant
from app.domain.model import Counts, IdempotencyKey, Validation, WebhookStatus, Window
from app.domain.options import NoticeStyle, ReplayOptions
from app.domain.rules import Rule
from app.domain.states import ReplayState
from app.store import Store, is_migrated, migrate, schema
from app.store.engine import open_engine
from app.store.tables import metadata
from tests.support.database.mariadb import MariaDbServer

SECRET = "whsec_c2VjcmV0"

# As the version before writes them: it does not know the columns that came after it.
OLD_WEBHOOK = text(
    "INSERT INTO webhooks (id, url, description, secret, created_ms)"
    " VALUES (:id, 'https://example.com/hook', 'orders', :secret, 1000)"
)
OLD_REPLAY = text(
    "INSERT INTO replays (id, webhook_id, active_webhook_id, from_ms, to_ms, state, lease_epoch,"
    " claimable_ms, delivered, duplicates, failed, created_ms)"
    " VALUES (:id, :webhook_id, :webhook_id, 1, 2, 'OPEN', 0, 1000, 0, 0, 0, 1000)"
)
A_KEY = text(
    "INSERT INTO api_keys (id, account_id, scope, description, digest, created_ms)"
    " VALUES (:id, :account, :scope, '', :digest, 1000)"
)
A_MOVE = text(
    "INSERT INTO replay_moves (replay_id, event, state, lease_epoch, actor, reason, at_ms)"
    " VALUES (:replay, :event, 'ONGOING', 1, :actor, :reason, 1000)"
)


class Killed(Exception):
    """Simulates a process that is killed at a statement."""


def migrate_to(url: str, revision: str) -> None:
    command.upgrade(schema.alembic_config(url), revision)


@pytest.fixture
def engine(empty_database_url: str) -> Iterator[Engine]:
    opened = open_engine(empty_database_url)
    yield opened
    opened.dispose()


def insert_old(engine: Engine, number: int) -> tuple[str, str]:
    """Insert a webhook and its replay like the previous version, and return their ids."""
    webhook_id, replay_id = f"wh_{number}", f"rpl_{number}"
    with engine.execution_options(rewind_writes=True).begin() as connection:
        connection.execute(OLD_WEBHOOK, {"id": webhook_id, "secret": SECRET})
        connection.execute(OLD_REPLAY, {"id": replay_id, "webhook_id": webhook_id})
    return webhook_id, replay_id


def check_old(store: Store, webhook_id: str, replay_id: str) -> None:
    """Check that rows of the previous version belong to the operator and work."""
    webhook = store.webhook(webhook_id, of_account=DEFAULT_ACCOUNT)
    assert (webhook.status, webhook.validation) == (WebhookStatus.ENABLED, Validation.PING)
    assert (webhook.url, webhook.secrets_at(0)) == ("https://example.com/hook", (SECRET,))
    replay = store.replay(replay_id, of_account=DEFAULT_ACCOUNT)
    assert (replay.state, replay.counts, replay.claims_without_progress) == (
        ReplayState.OPEN,
        Counts(),
        0,
    )
    assert (replay.options, replay.notice) == (ReplayOptions(), NoticeStyle.REWIND)
    assert (replay.retry_of, replay.waiting_for) == (None, None)


def test_rows_without_accounts_get_the_operators_account(
    empty_database_url: str, engine: Engine
) -> None:
    migrate_to(empty_database_url, "0002")
    ids = insert_old(engine, 1)
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    check_old(store, *ids)
    claim = store.claim("one", 60)
    assert claim is not None
    assert claim.replay.id == ids[1]
    assert store.complete(claim.lease) is False
    assert store.fail(claim.lease, "broken")
    notice = store.claim_notice(60)
    assert notice is not None
    assert notice.replay.id == ids[1]
    store.close()


def test_the_previous_version_works_on_the_migrated_database(
    empty_database_url: str, engine: Engine
) -> None:
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    check_old(store, *insert_old(engine, 1))
    with engine.execution_options(rewind_writes=True).begin() as connection:
        ended = text(
            "UPDATE replays SET state = 'CANCELLED', active_webhook_id = NULL,"
            " claimable_ms = NULL, finished_ms = 2000"
        )
        connection.execute(ended)
        connection.execute(text("UPDATE webhooks SET deleted_ms = 2000, secret = ''"))
    assert store.replay("rpl_1").state is ReplayState.CANCELLED
    assert store.webhooks().items == ()
    store.close()


def test_rows_without_a_data_centre_belong_to_all_data_centres(
    empty_database_url: str, engine: Engine
) -> None:
    migrate_to(empty_database_url, "0003")
    _, replay_id = insert_old(engine, 1)
    record_late_like_previous_version(engine)
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    assert store.replay(replay_id).origin == ""
    assert [store.late_end_offset(1, Window(10, 20), origin=each) for each in ("a", "b")] == [
        500,
        500,
    ]
    claim = store.claim("one", 0, "b")
    assert claim is not None
    assert (claim.replay.id, claim.replay.origin) == (replay_id, "b")
    # The data centre that stored the replay's offsets continues it.
    assert store.claim("two", 60, "a") is None
    store.close()


def test_the_previous_version_claims_and_records_late_arrivals(
    empty_database_url: str, engine: Engine
) -> None:
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    insert_old(engine, 1)
    record_late_like_previous_version(engine)
    assert store.late_end_offset(1, Window(10, 20), origin="a") == 500
    index = "FORCE INDEX (ix_replays_origin_claimable) "
    hint = "" if empty_database_url.startswith("sqlite") else index
    claimable = (
        f"SELECT id FROM replays {hint}WHERE origin = '' AND claimable_ms <= 2000"
        " AND state IN ('OPEN')"
        " ORDER BY claimable_ms, id LIMIT 1"
    )
    with engine.connect() as connection:
        assert connection.execute(text(claimable)).scalar() == "rpl_1"
    store.close()


def record_late_like_previous_version(engine: Engine) -> None:
    with engine.execution_options(rewind_writes=True).begin() as connection:
        connection.execute(
            text(
                "INSERT INTO late_arrivals (log_partition, from_ms, to_ms, end_offset, noted_ms)"
                " VALUES (1, 10, 20, 500, 1000)"
            )
        )


def test_the_routing_table_includes_webhooks_of_the_previous_version(
    empty_database_url: str, engine: Engine
) -> None:
    migrate_to(empty_database_url, "0002")
    webhook_id, _ = insert_old(engine, 1)
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    changes = store.routing_changes(0)
    assert [webhook.id for webhook in changes.webhooks] == [webhook_id]
    assert store.routing_changes(changes.revision).webhooks == ()
    store.close()


def test_histories_lose_names_of_machines_and_operators_keys(
    empty_database_url: str, engine: Engine
) -> None:
    migrate_to(empty_database_url, "0011")
    _, replay_id = insert_old(engine, 1)
    entries = [
        ("create", "key_1", None),
        ("pause", "key_2", None),
        ("claim", "replayer-1:4711:3d4e5f", None),
        ("take over", "replayer-2:4711:0a1b2c", "no heartbeat from replayer-1:4711:3d4e5f"),
    ]
    with engine.execution_options(rewind_writes=True).begin() as connection:
        for key_id, scope in (("key_1", "developer"), ("key_2", "operator")):
            key = {"id": key_id, "scope": scope, "account": DEFAULT_ACCOUNT, "digest": key_id}
            connection.execute(A_KEY, key)
        for move, actor, reason in entries:
            values = {"replay": replay_id, "event": move, "actor": actor, "reason": reason}
            connection.execute(A_MOVE, values)
        connection.execute(text("UPDATE replays SET worker = 'host:1:2', state = 'COMPLETED'"))
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    assert [(move.actor, move.reason) for move in store.moves(replay_id)] == [
        ("key_1", None),
        ("operator", None),
        ("worker", None),
        ("worker", "no heartbeat from a worker"),
    ]
    assert store.replay(replay_id).worker == "worker"
    store.close()


@pytest.mark.parametrize("is_in_use", [True, False])
def test_accounts_of_the_previous_version_get_a_grant_for_everything(
    empty_database_url: str, engine: Engine, caplog: pytest.LogCaptureFixture, is_in_use: bool
) -> None:
    migrate_to(empty_database_url, "0007")
    if is_in_use:
        insert_old(engine, 1)
        with engine.execution_options(rewind_writes=True).begin() as connection:
            connection.execute(text("INSERT INTO accounts VALUES ('acc_1', 'acme', 1000)"))
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    account_ids = [account.id for account in store.accounts()]
    assert account_ids == [DEFAULT_ACCOUNT, "acc_1"][: 2 if is_in_use else 1]
    for account_id in account_ids:
        assert store.grants(account_id).items == (Grant(account_id, EVERYTHING, ("*",)),)
        rule = Rule("wh_1", "default", ("x",))
        assert store.find_covered_rules(account_id, [rule]) == {("wh_1", "default")}
    assert store.grants(store.create_account("new").id).items == ()
    logged = [vars(each) for each in caplog.records if each.name == "rewind.migrations"]
    assert [(each["msg"], each["names"]) for each in logged] == (
        [("accounts-granted-everything", ["acme", "default"])] if is_in_use else []
    )
    store.close()


def test_an_idempotency_key_of_the_previous_version_is_an_operators(
    empty_database_url: str, engine: Engine
) -> None:
    migrate_to(empty_database_url, "0002")
    _, replay_id = insert_old(engine, 1)
    # By `printf outage-7 | sha256sum`.
    digest = "15d226e73b959c53183cf9d64cd96d4c95ff2a878a9e192b24851c5076c34314"
    key = IdempotencyKey.of("outage-7", b"body")
    with engine.execution_options(rewind_writes=True).begin() as connection:
        connection.execute(
            text("UPDATE replays SET idempotency_digest = :digest, request_fingerprint = :print"),
            {"digest": digest, "print": key.fingerprint},
        )
    migrate(empty_database_url)
    store = Store.open(empty_database_url)
    named = store.find_replay_by_idempotency_key(key)
    assert named is not None
    assert named.id == replay_id
    assert store.find_replay_by_idempotency_key(key, of_account=DEFAULT_ACCOUNT) is None
    store.close()


def migrate_until_killed(url: str, changes_max: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Migrate, and raise `Killed` after `changes_max` changes; return whether that happened."""
    changes = 0

    def kill(_connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        nonlocal changes
        if statement.lstrip().upper().startswith(("CREATE", "ALTER", "INSERT", "UPDATE")):
            changes += 1
        if changes > changes_max:
            raise Killed

    def open_killable(url: str, answer_s: int | None) -> Engine:
        engine = open_engine(url, answer_s)
        event.listen(engine, "before_cursor_execute", kill)
        return engine

    with monkeypatch.context() as patch:
        patch.setattr("app.store.engine.open_engine", open_killable)
        try:
            migrate(url)
        except Killed:
            return True
        return False


def test_a_migration_of_mysql_resumes_after_a_kill_at_any_step(
    mariadb: MariaDbServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = mariadb.create_database()
    kills = 0
    # Rows are committed by the step after them, so some runs take more than one.
    while migrate_until_killed(url, 1 + kills % 3, monkeypatch):
        kills += 1
        assert kills < 100
    assert kills > 20
    engine = open_engine(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
        accounts = connection.execute(text("SELECT id, name FROM accounts")).all()
        assert list(map(tuple, accounts)) == [("acc_default", "default")]
        revisions = connection.execute(text("SELECT name, value FROM revisions")).all()
        assert set(map(tuple, revisions)) == {("routing", 1), ("forgotten", 0)}
    engine.dispose()
    assert is_migrated(url)
