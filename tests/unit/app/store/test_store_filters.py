"""Lists of replays by state, webhook and account, and bulk moves."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from itertools import product
from typing import Any

import pytest
from sqlalchemy import Connection, insert, select, text

from app.domain.model import (
    NewReplay,
    NewWebhook,
    OffsetRange,
    Replay,
    ReplayFilter,
    Webhook,
    Window,
)
from app.domain.moves import MoveEvent
from app.domain.states import ACTIVE, ReplayEvent, ReplayState
from app.store import InvalidCursor, Store, replay_filters
from app.store.engine import Database
from app.store.replays import to_replay
from app.store.tables import replays, webhooks, written_columns
from app.webhooks.signing import new_secret

WINDOW = Window(1_000, 2_000)
EVER_MS = 10**15
OVER = [ReplayState.COMPLETED] * 90 + [ReplayState.CANCELLED] * 9 + [ReplayState.FAILED]


@pytest.fixture
def database(database_url: str, store: Store) -> Iterator[Database]:
    """Direct access to the database of `store`."""
    with closing(Database(database_url)) as opened:
        yield opened


def fill(database: Database, store: Store, count: int) -> list[Replay]:
    """Create replays of twenty webhooks of four accounts: `count` ended, some active."""
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    store.create_replay(NewReplay(webhook.id, WINDOW))

    def work(db: Connection) -> list[Replay]:
        receiver = db.execute(select(webhooks)).mappings().one()
        job = db.execute(select(*written_columns())).mappings().one()
        owners = {f"wh_{number}": f"acc_{number % 4}" for number in range(20)}
        names = list(owners)
        rows = [{**receiver, "id": name, "account_id": owners[name]} for name in names]
        db.execute(insert(webhooks), rows)
        ended = [(names[n % 20], OVER[n * 7 % 100], None) for n in range(count)]
        begun = [(name, state, name) for name, state in zip(names, sorted(ACTIVE), strict=False)]
        jobs = [
            {
                **job,
                "id": f"rpl_{n}",
                "webhook_id": name,
                "account_id": owners[name],
                "active_webhook_id": active,
                "state": str(state),
                # Many at a time, as when a script asks for them.
                "created_ms": n // 3,
            }
            for n, (name, state, active) in enumerate([*begun, *ended])
        ]
        db.execute(insert(replays), jobs)
        found = map(to_replay, db.execute(select(replays).where(replays.c.id != job["id"])))
        return sorted(found, key=lambda replay: (replay.created_ms, replay.id), reverse=True)

    filled = database.write(work)
    store.delete_webhook(webhook.id)
    return filled


def pages(store: Store, wanted: ReplayFilter, of_account: str | None = None) -> list[str]:
    """The ids of all pages."""
    ids, cursor = [], None
    while True:
        page = store.replays(wanted, cursor, 7, of_account=of_account)
        assert len(page.items) == 7 or page.next_cursor is None
        ids += [replay.id for replay in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return ids


def test_a_list_has_every_match_once_in_order(store: Store, database: Database) -> None:
    known = fill(database, store, 50)
    (own,) = store.replays(ReplayFilter(), limit=1).items
    states = [frozenset[ReplayState](), ACTIVE, frozenset({ReplayState.COMPLETED})]
    choices = product([*states, frozenset(ReplayState)], (None, "wh_7"), (None, "acc_3"))
    for chosen, webhook_id, account_id in choices:
        expected = [
            replay
            for replay in known
            if (not chosen or replay.state in chosen)
            and webhook_id in (None, replay.webhook_id)
            and account_id in (None, replay.account_id)
        ]
        ids = [replay.id for replay in expected]
        by_owner = ReplayFilter(chosen, webhook_id, account_id)
        by_caller = ReplayFilter(chosen, webhook_id)
        for wanted, of_account in ((by_owner, None), (by_caller, account_id)):
            found = pages(store, wanted, of_account)
            assert [each for each in found if each != own.id] == ids
            asked = store.replay_ids(wanted, EVER_MS, 1_000, of_account=of_account)
            assert list(asked) == found
        counted = store.count_by_state(by_owner)
        assert set(counted) == set(ReplayState)
        for state in chosen - {own.state}:
            assert counted[state] == Counter(each.state for each in expected)[state]


def test_a_filter_on_another_account_finds_nothing(store: Store, database: Database) -> None:
    known = fill(database, store, 10)
    others = ReplayFilter(account_id="acc_2")
    assert store.replays(others, of_account="acc_1").items == ()
    assert store.replay_ids(others, EVER_MS, 9, of_account="acc_1") == ()
    assert set(store.count_by_state(others, of_account="acc_1").values()) == {0}
    ids = [replay.id for replay in known]
    seen = store.replays_by_id(ids, of_account="acc_1")
    assert seen == {each.id: each for each in known if each.account_id == "acc_1"}


def test_a_list_of_ids_can_be_long_and_is_limited(store: Store, database: Database) -> None:
    known = fill(database, store, 30)
    before_ms = known[11].created_ms
    older = [replay.id for replay in known if replay.created_ms <= before_ms]
    assert store.replay_ids(ReplayFilter(), before_ms, 1_000) == tuple(older)
    assert store.replay_ids(ReplayFilter(), before_ms, 5) == tuple(older[:5])
    over = ReplayFilter(frozenset({ReplayState.COMPLETED, ReplayState.CANCELLED}))
    assert len(store.replay_ids(over, before_ms, 5)) == 5


def test_replays_are_read_by_any_number_of_ids(store: Store, database: Database) -> None:
    known = fill(database, store, 20)
    ids = [*(replay.id for replay in known), *(f"rpl_none_{n}" for n in range(1_200))]
    assert store.replays_by_id(ids) == {replay.id: replay for replay in known}
    assert store.replays_by_id([f"{known[0].id} "]) == {}
    assert store.replays_by_id([]) == {}


def test_a_malformed_cursor_is_rejected(store: Store) -> None:
    with pytest.raises(InvalidCursor):
        store.replays(ReplayFilter(ACTIVE), "nonsense")


def effort(database: Database, work: Callable[[Connection], object]) -> int:
    """The rows that MariaDB read, or the steps of SQLite, in hundreds."""

    def measured(db: Connection) -> int:
        work(db)
        if db.dialect.name == "sqlite":
            return _hundred_steps(db, work)
        db.exec_driver_sql("FLUSH STATUS")
        work(db)
        read = db.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
        return sum(int(row[1]) for row in read)

    return database.read(measured)


def _hundred_steps(db: Connection, work: Callable[[Connection], object]) -> int:
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    driver: Any = db.connection.dbapi_connection
    driver.set_progress_handler(count, 100)
    work(db)
    driver.set_progress_handler(None, 0)
    return steps


def test_a_page_does_not_scan_all_replays(store: Store, database: Database) -> None:
    fill(database, store, 3_000)
    one, some = frozenset({ReplayState.FAILED}), frozenset({ReplayState.FAILED, *ACTIVE})
    wanted = [
        ReplayFilter(states, webhook_id, account_id)
        for states in (frozenset[ReplayState](), one, some, frozenset({ReplayState.OPEN}))
        for webhook_id in (None, "wh_7")
        for account_id in (None, "acc_3")
    ]
    costs = {
        each: effort(database, lambda db, each=each: _page(db, each))  # type: ignore[misc]
        for each in wanted
    }
    # A full scan reads at least 3,000 rows, of which one account has 750.
    assert {each: cost for each, cost in costs.items() if cost > 400} == {}


def _page(db: Connection, wanted: ReplayFilter) -> None:
    replay_filters.list_replays(
        db, wanted, None, 20, of_account="acc_3" if wanted.account_id else None
    )


def test_counting_reads_only_an_index(store: Store, database: Database) -> None:
    fill(database, store, 3_000)
    if database.read(lambda db: db.dialect.name) == "sqlite":
        plan = text("EXPLAIN QUERY PLAN SELECT state, COUNT(*) FROM replays GROUP BY state")
        detail = database.read(lambda db: db.execute(plan).one().detail)
        assert "USING COVERING INDEX" in detail
    # Reads each index entry once, and no rows.
    of_all = effort(database, lambda db: replay_filters.count_by_state(db, ReplayFilter()))
    of_one = effort(
        database, lambda db: replay_filters.count_by_state(db, ReplayFilter(), of_account="acc_3")
    )
    assert of_all < 3_050
    assert of_one < 800


def new_replays(store: Store, count: int) -> list[Replay]:
    created = []
    for _ in range(count):
        webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
        created.append(store.create_replay(NewReplay(webhook.id, WINDOW))[0])
    return created


def states(store: Store, ids: Collection[str]) -> list[ReplayState]:
    found = store.replays_by_id(ids)
    return [found[each].state for each in ids]


def test_a_bulk_move_skips_replays_that_cannot_be_moved(
    store: Store,
) -> None:
    ids = [replay.id for replay in new_replays(store, 4)]
    store.cancel_replay(ids[0])
    store.pause_replay(ids[1])
    assert store.move_replays([*ids, ids[3], "rpl_none"], ReplayEvent.PAUSE, actor="key_1") == 2
    assert states(store, ids) == [ReplayState.CANCELLED, *[ReplayState.PAUSED] * 3]
    assert store.move_replays(ids[:3], ReplayEvent.RESUME, actor="key_2") == 2
    assert store.move_replays(ids, ReplayEvent.CANCEL, actor="key_3") == 3
    assert states(store, ids) == [ReplayState.CANCELLED] * 4
    assert [(move.event, move.actor) for move in store.moves(ids[2])[1:]] == [
        (MoveEvent.PAUSE, "key_1"),
        (MoveEvent.RESUME, "key_2"),
        (MoveEvent.CANCEL, "key_3"),
    ]
    assert store.move_replays([], ReplayEvent.CANCEL, actor="key_3") == 0


def test_a_bulk_move_skips_replays_of_other_accounts(store: Store) -> None:
    (replay,) = new_replays(store, 1)
    assert (
        store.move_replays([replay.id], ReplayEvent.CANCEL, of_account="acc_other", actor="key_1")
        == 0
    )
    assert store.replay(replay.id) == replay
    assert (
        store.move_replays(
            [replay.id], ReplayEvent.PAUSE, of_account=replay.account_id, actor="key_1"
        )
        == 1
    )


def test_a_large_bulk_move_uses_several_transactions(store: Store, database: Database) -> None:
    fill(database, store, 0)
    ids = [replay.id for replay in new_replays(store, 2)]
    asked = [*(f"rpl_none_{n}" for n in range(250)), *ids]
    assert store.move_replays(asked, ReplayEvent.CANCEL, actor=None) == 2


def test_replays_are_claimed_after_a_bulk_resume_but_not_a_bulk_cancel(store: Store) -> None:
    replays_made = new_replays(store, 3)
    ids = [replay.id for replay in replays_made]
    store.move_replays(ids, ReplayEvent.PAUSE, actor=None)
    assert store.claim("one", 60) is None
    store.move_replays(ids[:2], ReplayEvent.RESUME, actor=None)
    store.move_replays(ids[:1], ReplayEvent.CANCEL, actor=None)
    claim = store.claim("one", 60)
    assert claim is not None
    assert claim.replay.id == ids[1]
    assert store.claim("one", 60) is None


def test_a_worker_can_store_a_last_checkpoint_after_a_bulk_cancel(
    store: Store, webhook: Webhook
) -> None:
    store.create_replay(NewReplay(webhook.id, WINDOW))
    claim = store.claim("one", 60)
    assert claim is not None
    assert store.begin_delivery(claim.lease, OffsetRange(3, 100, 200))
    assert store.move_replays([claim.replay.id], ReplayEvent.CANCEL, actor=None) == 1
    assert not store.heartbeat(claim.lease, 60)
    assert store.checkpoint(claim.lease, 120, claim.replay.counts, [], with_sample=True)
    assert [sample.checkpoint for sample in store.samples(claim.replay.id)] == [100, 100, 120]
