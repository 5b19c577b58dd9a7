"""The worker process reports readiness and exits cleanly on SIGTERM."""

import signal
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.domain.processes import Process
from app.store import Store
from tests.support.database.migrated import make_migrated
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until

RUN = """
import os, sys
from app.config import Settings
from app.replay_workers.server import run
sys.exit(run(Settings.load(os.environ)))
"""


READY = "rewind worker ready"


def worker(folder: Path, **variables: str) -> ServerProcess:
    """Return a worker with the database in `folder`."""
    environment = {
        "REWIND_DATABASE": f"sqlite:///{folder}/rewind.db",
        "REWIND_BOOTSTRAP_SERVERS": "127.0.0.1:1",
        **variables,
    }
    return ServerProcess(["-c", RUN], folder / "worker.log", environment)


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    return url


@pytest.mark.usefixtures("url")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_code_zero(tmp_path: Path, number: signal.Signals) -> None:
    with worker(tmp_path) as process:
        process.start(READY)
        assert process.stop(number) == 0


def test_a_database_without_the_schema_is_refused(tmp_path: Path) -> None:
    with worker(tmp_path) as process:
        process.launch()
        assert process.wait() == 1
        assert "run `rewind migrate`" in process.output


@pytest.mark.usefixtures("url")
def test_metrics_are_shown_where_a_port_is_set(tmp_path: Path) -> None:
    port = free_port()
    with worker(tmp_path, REWIND_WORKER_METRICS_PORT=str(port)) as process:
        process.start(READY)
        page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert "rewind_worker_jobs_running 0.0" in page


def at_work(store: Store) -> tuple[Process, ...]:
    until(store.processes, "the worker tells that it is at work")
    return store.processes()


def test_it_stores_heartbeats_until_it_stops(tmp_path: Path, url: str) -> None:
    options = {"REWIND_ORIGIN": "east", "REWIND_JOBS_PER_WORKER": "7"}
    with closing(Store.open(url)) as store, worker(tmp_path, **options) as process:
        process.start(READY)
        (known,) = at_work(store)
        assert (known.kind, known.origin) == ("worker", "east")
        assert f":{process.pid}:" in known.name
        assert known.details == {"jobs": 0, "jobsMax": 7, "waitingJobs": 0}
        assert process.stop() == 0
        assert store.processes() == ()


def test_one_that_is_killed_is_missed(tmp_path: Path, url: str) -> None:
    with closing(Store.open(url)) as store:
        with worker(tmp_path) as process:
            process.launch()
            known = at_work(store)
        assert [each.name for each in store.processes()] == [each.name for each in known]
