import time

from sqlalchemy import func, select, update

from app.domain.processes import DELETED_AFTER_MS, SILENT_AFTER_MS, Process, ProcessKind
from app.store import Store
from app.store.engine import Database
from app.store.tables import processes

WORKER = ProcessKind.WORKER
STARTED_MS = 1_700_000_000_000


def be_present(store: Store, name: str, kind: ProcessKind = WORKER, jobs: int = 0) -> None:
    store.record_process_heartbeat(kind, name, "east", STARTED_MS, {"jobs": jobs})


def names(store: Store) -> list[tuple[ProcessKind, str]]:
    return [(each.kind, each.name) for each in store.processes()]


def silence(database_url: str, name: str, for_ms: int) -> None:
    """Let the last heartbeat lie so much further back."""
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


def test_a_process_is_known_by_what_it_told_last(store: Store) -> None:
    before_ms = time.time_ns() // 1_000_000
    be_present(store, "here:1", jobs=1)
    be_present(store, "here:1", jobs=3)
    (process,) = store.processes()
    assert process == Process(
        WORKER, "here:1", "east", {"jobs": 3}, STARTED_MS, process.heartbeat_ms, process.silent_ms
    )
    assert 0 <= process.heartbeat_ms + process.silent_ms - before_ms < SILENT_AFTER_MS
    assert not process.is_silent


def test_processes_come_by_kind_and_name(store: Store) -> None:
    be_present(store, "b:1")
    be_present(store, "a:1")
    be_present(store, "c:1", ProcessKind.API)
    assert names(store) == [(ProcessKind.API, "c:1"), (WORKER, "a:1"), (WORKER, "b:1")]


def test_one_that_leaves_is_gone_and_nobody_else(store: Store) -> None:
    be_present(store, "here:1")
    be_present(store, "here:1", ProcessKind.LIVE)
    be_present(store, "here:2")
    store.remove_process(WORKER, "here:1")
    assert names(store) == [(ProcessKind.LIVE, "here:1"), (WORKER, "here:2")]


def test_one_that_says_nothing_for_long_is_silent_until_it_speaks(
    store: Store, database_url: str
) -> None:
    be_present(store, "here:1")
    silence(database_url, "here:1", SILENT_AFTER_MS)
    (process,) = store.processes()
    assert process.is_silent
    be_present(store, "here:1")
    (process,) = store.processes()
    assert not process.is_silent


def test_one_that_was_silent_for_a_day_is_forgotten(store: Store, database_url: str) -> None:
    be_present(store, "dead:1")
    be_present(store, "here:2")
    silence(database_url, "dead:1", DELETED_AFTER_MS + 1)
    assert names(store) == [(WORKER, "here:2")]
    assert row_count(database_url) == 2
    store.delete_dead_processes()
    assert row_count(database_url) == 1


def test_of_a_name_too_long_for_its_column_the_end_is_kept(store: Store) -> None:
    be_present(store, f"{'h' * 300}:1")
    be_present(store, f"{'h' * 300}:1")
    be_present(store, f"{'h' * 300}:2")
    assert [name for _, name in names(store)] == [f"{'h' * 253}:1", f"{'h' * 253}:2"]
    store.remove_process(WORKER, f"{'h' * 300}:2")
    assert [name for _, name in names(store)] == [f"{'h' * 253}:1"]
