"""Lookups of receivers share queries, and each has an answer from after its start."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import NewWebhook, Webhook
from app.services.receivers import SHARED_IDS_MAX, ReceiverLookups
from app.store import Store, StoreUnavailable
from app.webhooks.signing import new_secret
from tests.support.database.fixtures import sqlite_url
from tests.support.database.migrated import make_migrated
from tests.unit.app.console.stored_jobs import statements

pytestmark = pytest.mark.anyio

NONE: frozenset[str] = frozenset()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    make_migrated(sqlite_url(tmp_path))
    with closing(Store.open(sqlite_url(tmp_path))) as opened:
        yield opened


def new_webhook(store: Store) -> Webhook:
    return store.create_webhook(NewWebhook("https://example.com/hook", "", new_secret()))


async def test_concurrent_lookups_share_a_query(store: Store) -> None:
    webhooks = [new_webhook(store) for _ in range(20)]
    lookups = ReceiverLookups(store)
    with statements() as seen:
        answers = await asyncio.gather(
            *(lookups.find(frozenset({each.id, "wh_none"}), NONE) for each in webhooks)
        )
    assert sum(sql.startswith("SELECT") for sql, _ in seen) == 1
    for webhook, found in zip(webhooks, answers, strict=True):
        assert found.owners[webhook.id] == DEFAULT_ACCOUNT
        assert "wh_none" not in found.owners


async def test_a_lookup_finds_what_was_created_while_another_one_runs(store: Store) -> None:
    lookups = ReceiverLookups(store)
    first = asyncio.create_task(lookups.find(frozenset({"wh_none"}), NONE))
    for _ in range(2):  # until its query has started
        await asyncio.sleep(0)
    webhook = new_webhook(store)
    assert webhook.id in (await lookups.find(frozenset({webhook.id}), NONE)).owners
    assert "wh_none" not in (await first).owners


async def test_many_ids_have_a_query_of_their_own(store: Store) -> None:
    lookups = ReceiverLookups(store)
    accounts = frozenset(f"acc_{number}" for number in range(SHARED_IDS_MAX + 1))
    many, few = await asyncio.gather(
        lookups.find(NONE, accounts | {DEFAULT_ACCOUNT}), lookups.find(NONE, frozenset({"acc_x"}))
    )
    assert set(many.unknown_accounts) == accounts
    assert set(few.unknown_accounts) == {"acc_x"}


async def test_an_error_reaches_all_lookups_and_later_ones_are_tried() -> None:
    with closing(Store.open("mysql+pymysql://root@127.0.0.1:1/rewind")) as unavailable:
        lookups = ReceiverLookups(unavailable)
        for _ in range(2):
            errors = await asyncio.gather(
                *(lookups.find(frozenset({"wh_1"}), NONE) for _ in range(3)),
                return_exceptions=True,
            )
            assert [type(error) for error in errors] == [StoreUnavailable] * 3


async def test_a_cancelled_lookup_leaves_the_others_alone(store: Store) -> None:
    webhook = new_webhook(store)
    lookups = ReceiverLookups(store)
    cancelled = asyncio.create_task(lookups.find(frozenset({webhook.id}), NONE))
    other = asyncio.create_task(lookups.find(frozenset({webhook.id}), NONE))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert webhook.id in (await other).owners
