"""Measures claims/s of worker processes: eight at once, compared with one.

Each worker has its own connections and claims replay after replay, as a worker process does, until
all are claimed. Each replay must be claimed exactly once. On MariaDB the store is also compared
with the same transaction without SKIP LOCKED, which waits for rows that other workers have locked.
SQLite has one writer at a time, so more workers cannot be faster there.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from threading import Barrier
from typing import Final, NamedTuple

from sqlalchemy import Connection, insert, select, update

from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import NewReplay, NewWebhook, Window
from app.domain.states import ReplayState
from app.store import Store, claim_queue, migrate
from app.store import replays as replays_table
from app.store import webhooks as webhooks_table
from app.store.engine import Database
from app.store.sql import ms_from_now, now_ms
from app.store.tables import CLAIM_INDEX, replays, webhooks, written_columns
from app.webhooks.signing import new_secret
from benchmarks.mariadb_server import mariadb_server
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line

WORKERS: Final = 8
LEASE_S: Final = 600.0
DAY_MS: Final = 86_400_000

Claim = Callable[[str], str | None]
"""Claims a replay for the worker of this name and returns its id; None without one to claim."""


class Case(NamedTuple):
    """The number of workers, and how they claim."""

    name: str
    workers: int
    method: str


ALONE: Final = Case("1 worker", 1, "store")
TOGETHER: Final = Case("8 workers", WORKERS, "store")
BLOCKING: Final = Case("8 workers, no SKIP LOCKED", WORKERS, "blocking")


class Claimed(NamedTuple):
    """The claims of one worker; times in seconds of the system's monotonic clock."""

    job_ids: list[str]
    start_s: float
    end_s: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure each case in each round, on both databases."""
    lines: list[Line] = []
    (folder / "claims-mariadb").mkdir()
    (folder / "claims-sqlite").mkdir()
    with mariadb_server(folder / "claims-mariadb") as url:
        rates = _rates(url, scale, (ALONE, TOGETHER, BLOCKING))
        lines += _lines("MariaDB", rates)
    url = f"sqlite:///{folder / 'claims-sqlite' / 'rewind.db'}"
    return [*lines, *_lines("SQLite", _rates(url, scale, (ALONE, TOGETHER)))]


def _rates(url: str, scale: Scale, cases: tuple[Case, ...]) -> dict[Case, float]:
    """Return the claims/s of each case."""
    queue_jobs(url, scale.open_jobs)
    rounds: dict[Case, list[float]] = {case: [] for case in cases}
    with _worker_processes() as (workers, counter):
        for _ in range(scale.rounds):
            for case in cases:
                reopen_jobs(url)
                counter.value = 0
                rounds[case].append(_claim_all(workers, url, case, scale.open_jobs))
    return {case: median(of) for case, of in rounds.items()}


def queue_jobs(url: str, count: int) -> None:
    """Create one replay as the API does, and the others as copies of its rows."""
    migrate(url)
    to_ms = time.time_ns() // 1_000_000
    with closing(Store.open(url)) as store:
        webhook = store.create_webhook(NewWebhook("https://example.com", "bench", new_secret()))
        store.enable_webhook(webhook.id, webhook.url)
        store.create_replay(NewReplay(webhook.id, Window(to_ms - DAY_MS, to_ms)))
    with closing(Database(url)) as database:
        database.write(lambda db: _copy_job(db, count - 1))


def _copy_job(db: Connection, count: int) -> None:
    webhook = db.execute(select(webhooks)).mappings().one()
    job = db.execute(select(*written_columns())).mappings().one()
    ids = [f"bench_{number}" for number in range(count)]
    db.execute(insert(webhooks), [{**webhook, "id": each} for each in ids])
    db.execute(
        insert(replays),
        [{**job, "id": each, "webhook_id": each, "active_webhook_id": each} for each in ids],
    )


def reopen_jobs(url: str) -> None:
    """Reset every replay to the state before its first claim."""
    statement = update(replays).values(
        state=str(ReplayState.OPEN),
        lease_epoch=0,
        claims_in_vain=0,
        worker=None,
        heartbeat_ms=None,
        started_ms=None,
        idle_ms=0,
        claimable_ms=replays.c.created_ms,
    )
    with closing(Database(url)) as database:
        database.write(lambda db: db.execute(statement))


def _claim_all(workers: ProcessPoolExecutor, url: str, case: Case, jobs: int) -> float:
    """Return the claims/s until every replay is claimed, each once."""
    tasks = [
        workers.submit(claim_until_none, url, case.method, case.workers, jobs)
        for _ in range(case.workers)
    ]
    claimed = [task.result() for task in tasks]
    job_ids = [job_id for each in claimed for job_id in each.job_ids]
    assert len(job_ids) == len(set(job_ids)) == jobs, (len(job_ids), len(set(job_ids)), jobs)
    return jobs / (max(each.end_s for each in claimed) - min(each.start_s for each in claimed))


_start_barrier: Barrier
_counter: "Synchronized[int]"


@contextmanager
def _worker_processes() -> Iterator[tuple[ProcessPoolExecutor, "Synchronized[int]"]]:
    spawn = multiprocessing.get_context("spawn")
    counter: Synchronized[int] = spawn.Value("i", 0)
    shared = (spawn.Barrier(WORKERS), counter)
    with ProcessPoolExecutor(WORKERS, spawn, set_shared, shared) as workers:
        yield workers, counter


def set_shared(barrier: Barrier, counter: "Synchronized[int]") -> None:
    """Set the barrier and the counter that all worker processes share."""
    global _start_barrier, _counter
    _start_barrier, _counter = barrier, counter


def claim_until_none(url: str, method: str, workers: int, jobs: int) -> Claimed:
    """Claim concurrently with the other workers until all `jobs` are claimed."""
    with closing(Database(url)) as database, closing(Store.open(url)) as store:
        claim = {"store": _store_claim(store), "blocking": _blocking_claim(database)}[method]
        # Connections are opened before the clock starts.
        store.check()
        database.read(lambda db: db.execute(select(1)))
        if workers == WORKERS:
            _start_barrier.wait()
        return _claim_until_none(claim, f"bench:{os.getpid()}", jobs)


def _claim_until_none(claim: Claim, worker: str, jobs: int) -> Claimed:
    job_ids, start_s = [], time.monotonic()
    while _counter.value < jobs:
        job_id = claim(worker)
        if job_id is not None:
            job_ids.append(job_id)
            with _counter.get_lock():
                _counter.value += 1
    return Claimed(job_ids, start_s, time.monotonic())


def _store_claim(store: Store) -> Claim:
    """Return the claim of a worker process."""

    def claim(worker: str) -> str | None:
        claimed = store.claim(worker, LEASE_S)
        return None if claimed is None else claimed.replay.id

    return claim


def _blocking_claim(database: Database) -> Claim:
    """Return a claim without SKIP LOCKED: it waits for rows that others have locked."""
    first = (
        select(replays.c.id)
        .with_hint(replays, f"FORCE INDEX ({CLAIM_INDEX})", "mysql")
        .where(
            replays.c.origin == "",
            replays.c.claim_account_id == DEFAULT_ACCOUNT,
            replays.c.claimable_ms <= now_ms(),
            replays.c.state == str(ReplayState.OPEN),
        )
        .order_by(replays.c.claimable_ms, replays.c.id)
        .limit(1)
        .with_for_update()
    )

    def claim_first(db: Connection, worker: str) -> str | None:
        row = db.execute(first).first()
        if row is None:
            return None
        db.execute(
            update(replays)
            .where(replays.c.id == row.id)
            .values(
                state=str(ReplayState.STARTED),
                lease_epoch=replays.c.lease_epoch + 1,
                worker=worker,
                heartbeat_ms=now_ms(),
                claimable_ms=ms_from_now(LEASE_S),
                started_ms=now_ms(),
            )
        )
        replay = replays_table.get_replay(db, row.id)
        webhooks_table.get_webhook(db, replay.webhook_id)
        return replay.id

    def claim(worker: str) -> str | None:
        # As in the store, so that the two differ only in their locks.
        if not database.read(lambda db: claim_queue.find_waiting_account(db, "", DEFAULT_ACCOUNT)):
            return None
        return database.write(lambda db: claim_first(db, worker))

    return claim


def _lines(database: str, rates: Mapping[Case, float]) -> Iterator[Line]:
    alone, together = rates[ALONE], rates[TOGETHER]
    yield Line(f"{database}, {ALONE.name}", alone, "claims/s")
    baseline = Baseline(ALONE.name, alone)
    yield Line(f"{database}, {TOGETHER.name}", together, "claims/s", baseline)
    if BLOCKING in rates:
        name = f"{database}, {BLOCKING.name}"
        yield Line(name, rates[BLOCKING], "claims/s", Baseline(TOGETHER.name, together))
