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


def presence(store: Store, jobs: list[int] | None = None, beat_s: float = 0.01) -> ProcessHeartbeat:
    details = {} if jobs is None else {"jobs": 0}

    def tell() -> dict[str, int]:
        return details | ({} if jobs is None else {"jobs": len(jobs)})

    return ProcessHeartbeat(store, ProcessKind.WORKER, "here:1", "east", tell, beat_s)


def known(store: Store) -> Process | None:
    """The one process, if there is any."""
    found = store.processes()
    assert len(found) <= 1
    return found[0] if found else None


async def test_a_process_is_known_while_it_lives_with_what_it_does_now(store: Store) -> None:
    jobs: list[int] = []
    async with presence(store, jobs):
        await until_async(lambda: known(store), "it is known")
        jobs += [1, 2]
        await until_async(lambda: (now := known(store)) and now.details["jobs"] == 2, "two jobs")
    assert known(store) is None


async def test_heartbeats_follow_one_another(store: Store) -> None:
    async with presence(store):
        await until_async(lambda: known(store), "it is known")
        first = known(store)
        assert first is not None
        await until_async(
            lambda: (now := known(store)) and now.heartbeat_ms > first.heartbeat_ms, "a next beat"
        )


async def test_a_process_whose_database_is_not_migrated_yet_is_known_once_it_is(
    empty_database_url: str,
) -> None:
    with closing(Store.open(empty_database_url)) as store:
        async with presence(store):
            await asyncio.to_thread(migrate, empty_database_url)
            await until_async(lambda: known(store), "it is known")


async def test_who_never_could_say_that_it_lives_leaves_nothing_behind(
    empty_database_url: str,
) -> None:
    with closing(Store.open(empty_database_url)) as store:
        async with presence(store, beat_s=60):
            pass
        await asyncio.to_thread(migrate, empty_database_url)
        assert known(store) is None


async def test_a_process_does_not_wait_for_a_database_that_is_silent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mysql+pymysql://nobody@127.0.0.1:{silent.getsockname()[1]}/rewind"
        with closing(Store.open(url)) as store:
            async with presence(store):
                asked, _ = await asyncio.to_thread(silent.accept)
            # The process is past its end, and the question is still open.
            asked.setblocking(False)
            with pytest.raises(BlockingIOError):
                asked.recv(1)
            # Nor was another one asked beside it.
            silent.settimeout(0)
            with pytest.raises(BlockingIOError):
                silent.accept()
            asked.close()
