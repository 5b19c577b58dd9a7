"""How fast workers take jobs off the queue: eight processes at once, beside one alone.

Each worker has connections of its own and claims as a worker process does, one job after the
other, until all are claimed; each job must have been claimed exactly once. On MariaDB the naive
way stands beside it: the same transaction, that waits for rows which others are claiming. On
SQLite there is one writer at a time, so workers beside each other can bring nothing.
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

from app.domain.model import NewReplay, NewWebhook, Window
from app.domain.states import ReplayState
from app.store import Store, leases, migrate
from app.store import replays as replays_table
from app.store import webhooks as webhooks_table
from app.store.engine import Database
from app.store.sql import ms_from_now, now_ms
from app.store.tables import CLAIM_INDEX, replays, webhooks
from app.webhooks.signing import new_secret
from benchmarks.mariadb_server import mariadb_server
from benchmarks.scale import Scale, median
from benchmarks.table import Baseline, Line

WORKERS: Final = 8
LEASE_S: Final = 600.0
DAY_MS: Final = 86_400_000

Claim = Callable[[str], str | None]
"""Claims a job for a worker of this name: its id; None if there was none just now."""


class Case(NamedTuple):
    """So many workers that claim in one way."""

    name: str
    workers: int
    way: str


ALONE: Final = Case("1 worker", 1, "store")
TOGETHER: Final = Case("8 workers", WORKERS, "store")
NAIVE: Final = Case("8 workers, naive", WORKERS, "naive")


class Claimed(NamedTuple):
    """What one worker did, and when by the system's monotonic clock, in seconds."""

    job_ids: list[str]
    start_s: float
    end_s: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Both databases, each case in each round."""
    lines: list[Line] = []
    (folder / "claims-mariadb").mkdir()
    (folder / "claims-sqlite").mkdir()
    with mariadb_server(folder / "claims-mariadb") as url:
        rates = _rates(url, scale, (ALONE, TOGETHER, NAIVE))
        lines += _lines("MariaDB", rates)
    url = f"sqlite:///{folder / 'claims-sqlite' / 'rewind.db'}"
    return [*lines, *_lines("SQLite", _rates(url, scale, (ALONE, TOGETHER)))]


def _rates(url: str, scale: Scale, cases: tuple[Case, ...]) -> dict[Case, float]:
    """Claims/s of each case."""
    queue_jobs(url, scale.open_jobs)
    rounds: dict[Case, list[float]] = {case: [] for case in cases}
    with _worker_processes() as (workers, counter):
        for _ in range(scale.rounds):
            for case in cases:
                open_again(url)
                counter.value = 0
                rounds[case].append(_claim_all(workers, url, case, scale.open_jobs))
    return {case: median(of) for case, of in rounds.items()}


def queue_jobs(url: str, count: int) -> None:
    """Make one job as the API does, and then the others as copies of its rows."""
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
    job = db.execute(select(replays)).mappings().one()
    ids = [f"bench_{number}" for number in range(count)]
    db.execute(insert(webhooks), [{**webhook, "id": each} for each in ids])
    db.execute(
        insert(replays),
        [{**job, "id": each, "webhook_id": each, "active_webhook_id": each} for each in ids],
    )


def open_again(url: str) -> None:
    """Have every job as nobody had ever claimed it."""
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
    """Claims/s until every job is claimed, each once."""
    tasks = [
        workers.submit(claim_until_none, url, case.way, case.workers, jobs)
        for _ in range(case.workers)
    ]
    claimed = [task.result() for task in tasks]
    job_ids = [job_id for each in claimed for job_id in each.job_ids]
    assert len(job_ids) == len(set(job_ids)) == jobs, (len(job_ids), len(set(job_ids)), jobs)
    return jobs / (max(each.end_s for each in claimed) - min(each.start_s for each in claimed))


_together: Barrier
_counter: "Synchronized[int]"


@contextmanager
def _worker_processes() -> Iterator[tuple[ProcessPoolExecutor, "Synchronized[int]"]]:
    spawn = multiprocessing.get_context("spawn")
    counter: Synchronized[int] = spawn.Value("i", 0)
    shared = (spawn.Barrier(WORKERS), counter)
    with ProcessPoolExecutor(WORKERS, spawn, share, shared) as workers:
        yield workers, counter


def share(barrier: Barrier, counter: "Synchronized[int]") -> None:
    """Take what all worker processes have in common."""
    global _together, _counter
    _together, _counter = barrier, counter


def claim_until_none(url: str, way: str, workers: int, jobs: int) -> Claimed:
    """Claim beside the other workers until all `jobs` are claimed."""
    with closing(Database(url)) as database, closing(Store.open(url)) as store:
        claim = {"store": _store_claim(store), "naive": _naive_claim(database)}[way]
        # So that no connection is made while the time runs.
        store.check()
        database.read(lambda db: db.execute(select(1)))
        if workers == WORKERS:
            _together.wait()
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
    """What a worker process does."""

    def claim(worker: str) -> str | None:
        claimed = store.claim(worker, LEASE_S)
        return None if claimed is None else claimed.replay.id

    return claim


def _naive_claim(database: Database) -> Claim:
    """What a worker would do without a way to pass over rows that others have locked."""
    first = (
        select(replays.c.id)
        .with_hint(replays, f"FORCE INDEX ({CLAIM_INDEX})", "mysql")
        .where(replays.c.claimable_ms <= now_ms(), replays.c.state == str(ReplayState.OPEN))
        .order_by(replays.c.claimable_ms, replays.c.id)
        .limit(1)
        .with_for_update()
    )

    def work(db: Connection, worker: str) -> str | None:
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
        # As the store does, so that the two differ in how they meet locks alone.
        if not database.read(lambda db: leases.list_claim_queues(db, "")):
            return None
        return database.write(lambda db: work(db, worker))

    return claim


def _lines(database: str, rates: Mapping[Case, float]) -> Iterator[Line]:
    alone, together = rates[ALONE], rates[TOGETHER]
    yield Line(f"{database}, {ALONE.name}", alone, "claims/s")
    baseline = Baseline(ALONE.name, alone)
    yield Line(f"{database}, {TOGETHER.name}", together, "claims/s", baseline)
    if NAIVE in rates:
        name = f"{database}, {NAIVE.name}"
        yield Line(name, rates[NAIVE], "claims/s", Baseline(TOGETHER.name, together))
