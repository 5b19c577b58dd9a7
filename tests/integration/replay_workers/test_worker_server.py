"""The worker process reports readiness and exits cleanly on SIGTERM."""

import signal
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.config import DAY_MS, Settings
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.model import NewReplay, NewWebhook, OffsetRange, Window
from app.domain.processes import Process
from app.domain.states import ReplayState
from app.log.replay_requests import (
    ReplayRequestListener,
    ReplayRequestPublisher,
    RequestHint,
)
from app.log.topics import ensure_topics
from app.store import Store
from app.webhooks.signing import new_secret
from tests.integration.replay_workers.worker_bench import BEGIN_MS
from tests.support.database.migrated import make_migrated
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.ports import free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

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
        page = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=DEADLINE_S).text
    assert "rewind_worker_jobs_running 0.0" in page


def test_a_requested_replay_wakes_it(tmp_path: Path, url: str, broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    ensure_topics(servers, partitions=4, retention_ms=DAY_MS)
    options = {
        "REWIND_BOOTSTRAP_SERVERS": servers,
        "REWIND_POLL_INTERVAL_S": "86400",
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
    }
    requests = ReplayRequestPublisher(servers, {})
    with (
        closing(Store.open(url)) as store,
        closing(requests),
        worker(tmp_path, **options) as process,
    ):
        process.start(READY)
        receiver = "http://127.0.0.1:1/hook"
        webhook = store.create_webhook(NewWebhook(receiver, "", new_secret(), DEFAULT_ACCOUNT))
        store.enable_webhook(webhook.id, receiver)
        replay, _ = store.create_replay(NewReplay(webhook.id, Window(BEGIN_MS, BEGIN_MS + 1)))

        def is_completed() -> bool:
            # The first requests may precede the listener's start.
            requests.publish(replay.id)
            return store.replay(replay.id).state is ReplayState.COMPLETED

        until(is_completed, "the worker found it")


def test_a_request_names_the_offsets_of_its_replay(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    ensure_topics(servers, partitions=4, retention_ms=DAY_MS)
    heard: list[RequestHint] = []
    settings = Settings.load({"REWIND_BOOTSTRAP_SERVERS": servers})
    with (
        closing(ReplayRequestPublisher(servers, {})) as requests,
        ReplayRequestListener(settings, heard.append),
    ):

        def has_heard_all() -> bool:
            # The first requests may precede the listener's start.
            requests.publish("rpl_known", OffsetRange(3, 10, 2**40))
            requests.publish("rpl_new")
            requests.publish_claim("rpl_claimed", "worker-1")
            return len({each.id for each in heard}) == 3

        until(has_heard_all, "the listener heard all")
    assert set(heard) == {
        RequestHint("rpl_known", OffsetRange(3, 10, 2**40)),
        RequestHint("rpl_new"),
        RequestHint("rpl_claimed", claimed_by="worker-1"),
    }


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
