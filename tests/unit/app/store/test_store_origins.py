"""Replays and late events of several data centres in one database."""

import time
from collections.abc import Callable

import pytest
from sqlalchemy import Connection, insert, text

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.lateness import LateSpan
from app.domain.model import Claim, IdempotencyKey, NewReplay, NewWebhook, Replay, Window
from app.domain.states import ReplayState
from app.store import ActiveReplayExists, Store, late_arrivals, leases
from app.store.claim_queue import ClaimQueue, find_waiting_account
from app.store.engine import Database, open_engine
from app.store.tables import replays
from app.webhooks.signing import new_secret

WINDOW = Window(1_000, 2_000)
FOREVER_MS = 10**15
OTHERS = 3_000

ROWS_MAX = 200
STEPS_MAX = 1_000
"""The maximal cost of a claim: rows on MariaDB, steps of the virtual machine on SQLite. There are
many more rows that it must not read. SQLite 3.53 needs 506 steps, SQLite 3.40 fewer than 200."""


def new_replay(store: Store, origin: str) -> Replay:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    return store.create_replay(NewReplay(webhook.id, WINDOW, origin=origin))[0]


def claim_replay(store: Store, origin: str, lease_s: float = 3_600) -> Claim:
    claim = store.claim(f"worker of {origin}", lease_s, origin)
    assert claim is not None
    return claim


def test_a_replay_is_claimed_only_in_its_own_data_centre(store: Store) -> None:
    replay = new_replay(store, "a")
    assert replay.origin == "a"
    assert store.claim("worker", 60, "b") is None
    assert claim_replay(store, "a").replay.id == replay.id


def test_names_of_data_centres_differ_by_case(store: Store) -> None:
    new_replay(store, "A")
    assert store.claim("worker", 60, "a") is None


def test_each_data_centre_claims_its_replays_in_order(store: Store) -> None:
    made = [new_replay(store, origin) for origin in ("b", "a", "b", "a", "b", "a")]
    for origin in ("a", "b"):
        mine = [replay for replay in made if replay.origin == origin]
        in_order = sorted(mine, key=lambda replay: (replay.created_ms, replay.id))
        assert [claim_replay(store, origin).replay.id for _ in mine] == [
            each.id for each in in_order
        ]
        assert store.claim("worker", 60, origin) is None


def test_a_takeover_happens_only_in_the_same_data_centre(store: Store) -> None:
    new_replay(store, "a")
    claim_replay(store, "a", lease_s=0)
    assert store.claim("worker", 60, "b") is None
    successor = claim_replay(store, "a")
    assert (successor.lease.epoch, successor.is_takeover) == (2, True)


def test_an_unassigned_replay_is_assigned_by_its_first_claim(store: Store) -> None:
    replay = new_replay(store, "")
    assert claim_replay(store, "b", lease_s=0).replay.origin == "b"
    assert store.replay(replay.id).origin == "b"
    assert store.claim("worker", 60, "a") is None
    assert claim_replay(store, "b").is_takeover


@pytest.mark.parametrize("origins", [("", "a"), ("a", "")])
def test_the_longest_waiting_replay_is_claimed_first_assigned_or_not(
    store: Store, database_url: str, origins: tuple[str, str]
) -> None:
    first, second = (new_replay(store, origin) for origin in origins)
    database = Database(database_url)
    earlier = text("UPDATE replays SET claimable_ms = claimable_ms - 5000 WHERE id = :id")
    database.write(lambda db: db.execute(earlier, {"id": first.id}))
    database.close()
    assert [claim_replay(store, "a").replay.id for _ in range(2)] == [first.id, second.id]


def test_a_claim_skips_replays_that_others_are_claiming(store: Store, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        pytest.skip("one writer at a time")
    mine, others = [new_replay(store, "a") for _ in range(2)], [new_replay(store, "b")]
    database = Database(database_url)

    def work(db: Connection) -> tuple[Claim | None, Claim | None, Claim | None]:
        slow = leases.claim_from_queue(db, "slow", 60, ClaimQueue(DEFAULT_ACCOUNT, "a"), "a")
        return slow, store.claim("quick", 60, "a"), store.claim("other", 60, "b")

    claims = database.write(work)
    database.close()
    assert None not in claims
    ids = [claim.replay.id for claim in claims if claim]
    assert (sorted(ids[:2]), ids[2:]) == (
        sorted(each.id for each in mine),
        [each.id for each in others],
    )


def cost_of(connection: Connection, work: Callable[[Connection], object]) -> float:
    """The cost of some work, as a share of `ROWS_MAX` or `STEPS_MAX`."""
    if connection.dialect.name == "sqlite":
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(count, 1)
        work(connection)
        driver.set_progress_handler(None, 1)
        return steps / STEPS_MAX
    before = rows_read(connection)
    work(connection)
    return (rows_read(connection) - before) / ROWS_MAX


def rows_read(connection: Connection) -> int:
    status = connection.execute(text("SHOW SESSION STATUS LIKE 'Handler_read%'"))
    return sum(int(value) for _name, value in status)


@pytest.mark.parametrize("is_unassigned", [False, True])
def test_a_claim_does_not_scan_replays_of_other_data_centres(
    store: Store, database_url: str, is_unassigned: bool
) -> None:
    """With any waiting time, and any index statistics."""
    lost = new_replay(store, "a")
    rows = [
        {
            "id": f"rpl_{number}",
            "webhook_id": lost.webhook_id,
            "from_ms": 1,
            "to_ms": 2,
            "state": "OPEN",
            "claimable_ms": 1_000 + number,
            "created_ms": 1_000 + number,
            "origin": "a",
        }
        for number in range(OTHERS)
    ]
    engine = open_engine(database_url)
    with engine.execution_options(rewind_writes=True).begin() as connection:
        connection.execute(insert(replays), rows)
    with engine.connect() as connection:
        costs = [cost_of(connection, lambda db: find_waiting_account(db, "b", "acc"))]
        assert costs[0] <= 1
    mine = new_replay(store, "" if is_unassigned else "b")
    with engine.execution_options(rewind_writes=True).begin() as connection:
        waiting = find_waiting_account(connection, "b", "acc")
        assert waiting is not None
        claims: list[Claim | None] = []
        costs += [
            cost_of(connection, lambda db: find_waiting_account(db, "b", "acc")),
            cost_of(
                connection,
                lambda db: claims.append(
                    leases.claim_from_queue(db, "w", 60, waiting.queue, "b", 9)
                ),
            ),
        ]
        assert [claim.replay.id for claim in claims if claim] == [mine.id]
        # The claim itself writes and reads the replay and its webhook, and not one row more.
        assert max(costs) <= 5
        # None of those of the other data centre is locked by it.
        if not database_url.startswith("sqlite"):
            assert store.claim("worker", 60, "a") is not None
    engine.dispose()


def test_a_webhook_has_one_replay_at_a_time_in_all_data_centres(store: Store) -> None:
    replay = new_replay(store, "a")
    with pytest.raises(ActiveReplayExists) as refusal:
        store.create_replay(NewReplay(replay.webhook_id, WINDOW, origin="b"))
    assert refusal.value.replay_id == replay.id
    store.cancel_replay(replay.id)
    assert store.create_replay(NewReplay(replay.webhook_id, WINDOW, origin="b"))[0].origin == "b"


def test_an_idempotency_key_is_valid_in_all_data_centres(store: Store) -> None:
    webhook = store.create_webhook(NewWebhook("https://example.com/", "", new_secret()))
    key = IdempotencyKey.of("outage-7", b"body")
    first, _ = store.create_replay(NewReplay(webhook.id, WINDOW, origin="a"), key)
    again, is_new = store.create_replay(NewReplay(webhook.id, WINDOW, origin="b"), key)
    assert (again, is_new) == (first, False)


def test_a_resumed_replay_stays_in_its_data_centre(store: Store) -> None:
    replay = new_replay(store, "a")
    claim = claim_replay(store, "a")
    assert store.pause_replay(replay.id).state is ReplayState.PAUSED
    assert not store.heartbeat(claim.lease, 60)
    assert store.resume_replay(replay.id).origin == "a"
    assert store.claim("worker", 60, "b") is None
    assert claim_replay(store, "a").replay.id == replay.id


def test_a_notice_is_claimed_by_workers_of_any_data_centre(store: Store) -> None:
    replay = new_replay(store, "a")
    store.enable_webhook(replay.webhook_id, "https://example.com/")
    store.cancel_replay(replay.id)
    notice = store.claim_notice(60)
    assert notice is not None
    assert (notice.replay.id, notice.replay.origin) == (replay.id, "a")


def test_statistics_are_by_data_centre(store: Store) -> None:
    for origin in ("a", "b", "b"):
        new_replay(store, origin)
    claim_replay(store, "b", lease_s=0)
    numbers = store.job_statistics("c")
    assert numbers.by_state[ReplayState.OPEN] == 2
    assert numbers.oldest_open_s.keys() == {"a", "b", "c"}
    assert numbers.oldest_open_s["c"] == 0
    assert numbers.late_heartbeats == {"b": 1, "c": 0}


def span(from_ms: int, to_ms: int, end: int) -> LateSpan:
    return LateSpan(1, Window(from_ms, to_ms), end)


def test_late_arrivals_are_by_data_centre(store: Store) -> None:
    store.record_late_arrivals([span(10, 20, 500)], FOREVER_MS, origin="a")
    store.record_late_arrivals([span(10, 20, 300)], FOREVER_MS, origin="b")
    ends = [store.late_end_offset(1, Window(0, 100), origin=origin) for origin in ("a", "b", "c")]
    assert ends == [500, 300, None]


def test_a_late_arrival_without_origin_applies_to_all_data_centres(store: Store) -> None:
    store.record_late_arrivals([span(10, 20, 400)], FOREVER_MS, origin="")
    store.record_late_arrivals([span(10, 20, 500)], FOREVER_MS, origin="a")
    store.record_late_arrivals([span(10, 20, 300)], FOREVER_MS, origin="b")
    ends = [store.late_end_offset(1, Window(0, 100), origin=origin) for origin in ("a", "b", "c")]
    assert ends == [500, 400, 400]


def test_a_lookup_of_late_arrivals_reads_no_rows_of_other_data_centres(
    store: Store, database_url: str
) -> None:
    now_ms = time.time_ns() // 1_000_000
    notes = [span(now_ms, now_ms + 1, number) for number in range(OTHERS)]
    store.record_late_arrivals(notes, FOREVER_MS, origin="a")
    store.record_late_arrivals([span(10, 20, 7)], FOREVER_MS, origin="b")
    engine = open_engine(database_url)
    with engine.connect() as connection:
        window = Window(15, 16)
        assert late_arrivals.late_end_offset(connection, 1, window, origin="b") == 7
        cost = cost_of(
            connection, lambda db: late_arrivals.late_end_offset(db, 1, window, origin="b")
        )
    engine.dispose()
    assert cost <= 1
