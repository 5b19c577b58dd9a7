"""The worker process reports readiness and exits cleanly on SIGTERM."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from app.domain.processes import Process
from app.store import Store
from tests.support.database.migrated import make_migrated
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S, until

RUN = """
import os, sys
from app.config import Settings
from app.replay_workers.server import run
sys.exit(run(Settings.load(os.environ)))
"""


@contextmanager
def worker(url: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A worker of its own process; its log is on `stderr`."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN],
        env={
            "REWIND_DATABASE": url,
            "REWIND_BOOTSTRAP_SERVERS": "127.0.0.1:1",
            **variables,
        },
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stderr is not None
    seen = []
    for line in process.stderr:
        seen.append(line)
        if line == "rewind worker ready\n":
            return
    pytest.fail("".join(seen))


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(url)
    return url


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_code_zero(url: str, number: int) -> None:
    with worker(url) as process:
        wait_until_ready(process)
        process.send_signal(number)
        assert process.wait(DEADLINE_S) == 0


@pytest.mark.processes
def test_a_database_without_the_schema_is_refused(tmp_path: Path) -> None:
    with worker(f"sqlite:///{tmp_path}/empty.db") as process:
        assert process.wait(DEADLINE_S) == 1
        assert process.stderr is not None
        assert "run `rewind migrate`" in process.stderr.read()


@pytest.mark.processes
def test_metrics_are_shown_where_a_port_is_set(url: str) -> None:
    port = free_port()
    with worker(url, REWIND_WORKER_METRICS_PORT=str(port)) as process:
        wait_until_ready(process)
        page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    assert "rewind_worker_jobs_running 0.0" in page


def at_work(store: Store) -> tuple[Process, ...]:
    until(store.processes, "the worker tells that it is at work")
    return store.processes()


@pytest.mark.processes
def test_it_stores_heartbeats_until_it_stops(url: str) -> None:
    options = {"REWIND_ORIGIN": "east", "REWIND_JOBS_PER_WORKER": "7"}
    with closing(Store.open(url)) as store, worker(url, **options) as process:
        (known,) = at_work(store)
        assert (known.kind, known.origin) == ("worker", "east")
        assert f":{process.pid}:" in known.name
        assert known.details == {"jobs": 0, "jobsMax": 7, "waitingJobs": 0}
        wait_until_ready(process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(DEADLINE_S) == 0
        assert store.processes() == ()


@pytest.mark.processes
def test_one_that_is_killed_is_missed(url: str) -> None:
    with closing(Store.open(url)) as store:
        with worker(url):
            known = at_work(store)
        assert [each.name for each in store.processes()] == [each.name for each in known]
