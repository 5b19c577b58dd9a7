"""Housekeeping deletes what has expired, reports it, and survives a database that is down."""

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import update

from app.config import Settings
from app.domain.account_notices import NewNoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import NewReplay, NewWebhook, Window
from app.services.housekeeping import Housekeeping
from app.services.metrics import ApiMetrics
from app.store import Store
from app.store.notice_tables import account_notices
from app.store.tables import replays, webhooks
from app.webhooks.signing import new_secret
from tests.support.database.fixtures import sqlite_url
from tests.support.database.migrated import make_migrated
from tests.support.processes.waiting import until_async

pytestmark = pytest.mark.anyio

DAY_MS = 86_400_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    make_migrated(sqlite_url(tmp_path))
    with closing(Store.open(sqlite_url(tmp_path))) as opened:
        yield opened


def make_expired(store: Store) -> str:
    """Create an old cancelled replay of a webhook with an expired secret; returns its id."""
    webhook = store.create_webhook(NewWebhook("https://example.com/hook", "", new_secret()))
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(1_000, 2_000)))
    store.cancel_replay(replay.id)
    store.rotate_secret(webhook.id, new_secret(), 60_000)
    old = update(replays).values(finished_ms=1, notice_due_ms=None)
    store.database.write(lambda connection: connection.execute(old))
    expired = update(webhooks).values(previous_secret_until_ms=1)
    store.database.write(lambda connection: connection.execute(expired))
    return replay.id


def value_of(metrics: ApiMetrics, name: str, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


async def test_expired_rows_are_deleted_counted_and_logged(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    make_expired(store)
    metrics = ApiMetrics()
    housekeeping = Housekeeping(store, 90 * DAY_MS, metrics)
    await housekeeping.clean()
    assert store.replays().items == ()
    deleted = "rewind_retention_deleted_rows_total"
    assert value_of(metrics, deleted, table="replays") == 1
    assert value_of(metrics, deleted, table="replay_moves") == 2
    assert value_of(metrics, "rewind_retention_erased_secrets_total") == 1
    assert [record.message for record in caplog.records] == [
        "expired-secrets-erased",
        "old-replays-deleted",
    ]
    await housekeeping.clean()
    assert len(caplog.records) == 2


async def test_notices_that_no_worker_sends_are_deleted(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    new = NewNoticeEndpoint(DEFAULT_ACCOUNT, "https://example.com/n", "", new_secret())
    endpoint = store.enable_notice_endpoint(store.create_notice_endpoint(new).id)
    webhook = store.create_webhook(NewWebhook("https://example.com/hook", "", new_secret()))
    store.disable_webhook(webhook.id, "by hand")
    housekeeping = Housekeeping(store, None, ApiMetrics())
    await housekeeping.clean()
    assert caplog.messages == []
    stale = update(account_notices).values(due_ms=1)
    store.database.write(lambda connection: connection.execute(stale))
    await housekeeping.clean()
    assert caplog.messages == ["stale-notices-deleted"]
    assert store.claim_account_notice(60, []) is None
    assert store.notice_endpoint(endpoint.id).failure is None


async def test_without_a_retention_replays_are_kept(store: Store) -> None:
    replay_id = make_expired(store)
    await Housekeeping(store, None, ApiMetrics()).clean()
    assert store.replay(replay_id).id == replay_id


async def test_a_process_cleans_repeatedly_and_after_a_failure(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = sqlite_url(tmp_path)
    with closing(Store.open(url)) as store:
        metrics = ApiMetrics()
        async with Housekeeping(store, 90 * DAY_MS, metrics, interval_s=0.01):
            await until_async(lambda: "housekeeping-failed" in caplog.messages, "a failure")
            store.close()
            make_migrated(url)
            make_expired(store)
            await until_async(lambda: not store.replays().items, "the old replay is deleted")


def test_the_retention_is_at_least_that_of_deliveries() -> None:
    assert Settings().replay_retention_ms == 90 * DAY_MS
    assert Settings(replay_retention_days=0).replay_retention_ms is None
    assert Settings(replay_retention_days=1, history_days=5).replay_retention_ms == 6 * DAY_MS
