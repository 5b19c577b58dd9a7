import time

from sqlalchemy import func, select, update

from app.domain.processes import DELETED_AFTER_MS, SILENT_AFTER_MS, Process, ProcessKind
from app.store import Store
from app.store.engine import Database
from app.store.tables import processes

WORKER = ProcessKind.WORKER
STARTED_MS = 1_700_000_000_000


def send_heartbeat(store: Store, name: str, kind: ProcessKind = WORKER, jobs: int = 0) -> None:
    store.record_process_heartbeat(kind, name, "east", STARTED_MS, {"jobs": jobs})


def names(store: Store) -> list[tuple[ProcessKind, str]]:
    return [(each.kind, each.name) for each in store.processes()]


def age_heartbeat(database_url: str, name: str, for_ms: int) -> None:
    """Make the last heartbeat older by `for_ms`."""
    database = Database(database_url)
    statement = update(processes).where(processes.c.name == name)
    earlier = statement.values(heartbeat_ms=processes.c.heartbeat_ms - for_ms)
    database.write(lambda db: db.execute(earlier))
    database.close()


def row_count(database_url: str) -> int | None:
    database = Database(database_url)
    count = database.read(lambda db: db.scalar(select(func.count()).select_from(processes)))
    database.close()
    return count


def test_a_process_is_listed_with_its_last_heartbeat(store: Store) -> None:
    before_ms = time.time_ns() // 1_000_000
    send_heartbeat(store, "here:1", jobs=1)
    send_heartbeat(store, "here:1", jobs=3)
    (process,) = store.processes()
    assert process == Process(
        WORKER, "here:1", "east", {"jobs": 3}, STARTED_MS, process.heartbeat_ms, process.silent_ms
    )
    assert 0 <= process.heartbeat_ms + process.silent_ms - before_ms < SILENT_AFTER_MS
    assert not process.is_silent


def test_processes_are_ordered_by_kind_and_name(store: Store) -> None:
    send_heartbeat(store, "b:1")
    send_heartbeat(store, "a:1")
    send_heartbeat(store, "c:1", ProcessKind.API)
    assert names(store) == [(ProcessKind.API, "c:1"), (WORKER, "a:1"), (WORKER, "b:1")]


def test_a_removed_process_is_not_listed(store: Store) -> None:
    send_heartbeat(store, "here:1")
    send_heartbeat(store, "here:1", ProcessKind.LIVE)
    send_heartbeat(store, "here:2")
    store.remove_process(WORKER, "here:1")
    assert names(store) == [(ProcessKind.LIVE, "here:1"), (WORKER, "here:2")]


def test_a_process_without_heartbeats_is_silent_until_the_next(
    store: Store, database_url: str
) -> None:
    send_heartbeat(store, "here:1")
    age_heartbeat(database_url, "here:1", SILENT_AFTER_MS)
    (process,) = store.processes()
    assert process.is_silent
    send_heartbeat(store, "here:1")
    (process,) = store.processes()
    assert not process.is_silent


def test_a_process_without_heartbeats_for_a_day_is_deleted(store: Store, database_url: str) -> None:
    send_heartbeat(store, "dead:1")
    send_heartbeat(store, "here:2")
    age_heartbeat(database_url, "dead:1", DELETED_AFTER_MS + 1)
    assert names(store) == [(WORKER, "here:2")]
    assert row_count(database_url) == 2
    store.delete_dead_processes()
    assert row_count(database_url) == 1


def test_the_end_of_a_name_that_is_too_long_is_kept(store: Store) -> None:
    send_heartbeat(store, f"{'h' * 300}:1")
    send_heartbeat(store, f"{'h' * 300}:1")
    send_heartbeat(store, f"{'h' * 300}:2")
    assert [name for _, name in names(store)] == [f"{'h' * 253}:1", f"{'h' * 253}:2"]
    store.remove_process(WORKER, f"{'h' * 300}:2")
    assert [name for _, name in names(store)] == [f"{'h' * 253}:1"]
