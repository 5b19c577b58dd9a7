import asyncio
import socket
from contextlib import closing

import pytest

from app.domain.processes import Process, ProcessKind
from app.store import Store, migrate
from app.store.process_heartbeat import ProcessHeartbeat
from tests.support.processes.waiting import until_async

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def heartbeat(
    store: Store, jobs: list[int] | None = None, beat_s: float = 0.01
) -> ProcessHeartbeat:
    details = {} if jobs is None else {"jobs": 0}

    def details_now() -> dict[str, int]:
        return details | ({} if jobs is None else {"jobs": len(jobs)})

    return ProcessHeartbeat(store, ProcessKind.WORKER, "here:1", "east", details_now, beat_s)


def listed(store: Store) -> Process | None:
    """The listed process, if any."""
    found = store.processes()
    assert len(found) <= 1
    return found[0] if found else None


async def test_a_process_is_listed_while_it_runs_with_current_details(store: Store) -> None:
    jobs: list[int] = []
    async with heartbeat(store, jobs):
        await until_async(lambda: listed(store), "it is listed")
        jobs += [1, 2]
        await until_async(lambda: (now := listed(store)) and now.details["jobs"] == 2, "two jobs")
    assert listed(store) is None


async def test_heartbeats_repeat(store: Store) -> None:
    async with heartbeat(store):
        await until_async(lambda: listed(store), "it is listed")
        first = listed(store)
        assert first is not None
        await until_async(
            lambda: (now := listed(store)) and now.heartbeat_ms > first.heartbeat_ms,
            "the next heartbeat",
        )


async def test_heartbeats_begin_after_the_database_is_migrated(
    empty_database_url: str,
) -> None:
    with closing(Store.open(empty_database_url)) as store:
        async with heartbeat(store):
            await asyncio.to_thread(migrate, empty_database_url)
            await until_async(lambda: listed(store), "it is listed")


async def test_a_process_without_heartbeats_leaves_no_row(
    empty_database_url: str,
) -> None:
    with closing(Store.open(empty_database_url)) as store:
        async with heartbeat(store, beat_s=60):
            pass
        await asyncio.to_thread(migrate, empty_database_url)
        assert listed(store) is None


async def test_a_process_ends_while_the_database_hangs() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mysql+pymysql://rewind@127.0.0.1:{silent.getsockname()[1]}/rewind"
        with closing(Store.open(url)) as store:
            async with heartbeat(store):
                accepted, _ = await asyncio.to_thread(silent.accept)
            # The process has ended, and the request is still open.
            accepted.setblocking(False)
            with pytest.raises(BlockingIOError):
                accepted.recv(1)
            # No other connection was opened.
            silent.settimeout(0)
            with pytest.raises(BlockingIOError):
                silent.accept()
            accepted.close()
