"""`rewind up`: start, restart, failures, and shutdown."""

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from app.store import migrate
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.ports import adjacent_ports, free_port
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

READY = "rewind ready on "

# These tests share one service, in one xdist group.
SHARES_SERVICE = pytest.mark.xdist_group("up")


class Up(ServerProcess):
    """`rewind up` on free ports, with a data directory."""

    def __init__(self, folder: Path, name: str = "up", options: tuple[str, ...] = ()) -> None:
        self.folder = folder / "data"
        ports = ("--port", "0", "--broker-port", "0")
        command = ("-m", "app", "up", "--data-dir", str(self.folder), *ports, *options)
        environment = {
            "REWIND_ALLOW_PRIVATE_TARGETS": "true",
            # Without a key of the tests, so that the first start creates one.
            "REWIND_SECRET_KEY": "",
            "REWIND_API_KEY": "rwk_of_a_command",
            "UNRELATED_PASSWORD": "of another program",
        }
        super().__init__(command, folder / f"{name}.log", environment)

    def connect(self) -> httpx.Client:
        """Start the service. Returns a client of its API with the operator's key."""
        key = self.folder / "operator.key"
        url = self.start(READY)
        return httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key.read_text().strip()}"},
            timeout=DEADLINE_S,
            verify=False,  # no TLS
        )

    @property
    def url(self) -> str:
        """The URL of the API, once it is ready."""
        (line,) = (each for each in self.output.splitlines() if each.startswith(READY))
        return line.removeprefix(READY)

    def failure(self) -> list[str]:
        """Start the service, which must fail. Returns its error messages."""
        self.launch()
        assert self.wait() == 1
        return [line for line in self.output.splitlines() if line.startswith("rewind: ")]

    def children(self) -> list[int]:
        """Return the ids of its child processes."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [int(pid) for each in threads for pid in (each / "children").read_text().split()]


def state(pid: int) -> str:
    """Return the kernel's state letter of a process; Z after its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def has_ended(pid: int) -> bool:
    return state(pid) == "Z"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Yield a running service, for tests that do not change it."""
    with Up(tmp_path_factory.mktemp("running")) as up:
        up.start(READY)
        yield up


def test_data_survives_a_restart_and_the_end_of_one_process_stops_all(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    window = {"from": (now - timedelta(minutes=5)).isoformat(), "to": now.isoformat()}
    in_east = ("--origin", "east")
    with ReceiverThread() as receiver, Up(tmp_path, options=in_east) as up, up.connect() as api:
        webhook = api.post("/webhooks", json={"url": receiver.url}).json()
        with closing(sqlite3.connect(up.folder / "rewind.db")) as database:
            (secret,) = database.execute("SELECT secret FROM webhooks").fetchone()
        # The key is in a file of its own, not in the database.
        assert secret.startswith("v1:")
        key_text = (up.folder / "secret.key").read_text()
        assert len(b64decode(key_text)) == 32
        # Other users must not read secrets and events.
        assert not [each for each in up.folder.rglob("*") if each.stat().st_mode & 0o077]
        event = {"id": "evt_1", "type": "made", "time": window["from"], "data": {}}
        api.post("/events", json=event | {"webhookId": webhook["id"]}).raise_for_status()
        replay = api.post("/replays", json={"webhookId": webhook["id"], **window}).json()
        assert replay["origin"] == "east"
        api.post(f"/replays/{replay['id']}/cancel").raise_for_status()
        until(
            lambda: _running_processes(api) == ["api", "live", "worker"],
            "all tell that they are at work",
        )
        assert {each["origin"] for each in api.get("/processes").json()["items"]} == {"east"}
        assert up.stop(signal.SIGINT) == 0
        assert '"action": "createKey"' in up.output
        assert key_text.strip() not in up.output
        key = (up.folder / "operator.key").read_text()
        assert key.strip() not in up.output
        with closing(sqlite3.connect(up.folder / "rewind.db")) as database:
            assert database.execute("SELECT kind FROM processes").fetchall() == []
    with Up(tmp_path, options=in_east) as up, up.connect() as api:
        assert (up.folder / "operator.key").read_text() == key
        assert '"action": "createKey"' not in up.output
        assert api.get("/webhooks").json()["items"][0]["id"] == webhook["id"]
        assert api.get(f"/replays/{replay['id']}").json()["state"] == "CANCELLED"
        replay = api.post("/replays", json={"webhookId": webhook["id"], **window}).json()
        until(lambda: _reads(api, replay["id"]), "the event that was published before is found")
        children = up.children()
        os.kill(children[-1], signal.SIGKILL)
        assert up.wait() == 1
        assert "rewind: rewind worker exited with code -9" in up.output
        assert all(has_ended(pid) for pid in children)


@SHARES_SERVICE
def test_the_operator_key_grants_access_to_the_api(running: Up) -> None:
    url = f"{running.url}/webhooks"
    key = running.folder / "operator.key"
    authorization = {"authorization": f"Bearer {key.read_text().strip()}"}
    assert httpx.get(url, headers=authorization, timeout=DEADLINE_S).status_code == 200
    assert httpx.get(url, timeout=DEADLINE_S).status_code == 401
    assert running.folder.stat().st_mode & 0o777 == 0o700


@SHARES_SERVICE
def test_a_command_with_the_same_data_directory_needs_no_key(running: Up, tmp_path: Path) -> None:
    event = {"id": "evt_1", "type": "made", "time": datetime.now(UTC).isoformat(), "data": {}}
    (tmp_path / ".rewind").symlink_to(running.folder)
    published = subprocess.run(
        [sys.executable, "-m", "app", "publish", "-", "--api-url", running.url],
        cwd=tmp_path,
        input=json.dumps(event),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (published.returncode, published.stdout) == (0, "1\n"), published.stderr


@SHARES_SERVICE
def test_no_process_inherits_what_it_does_not_need(running: Up) -> None:
    environments = {_command(pid): _environment(pid) for pid in running.children()}
    assert environments.keys() == {"serve", "api", "live", "worker"}
    for name, environment in environments.items():
        assert not {"UNRELATED_PASSWORD", "REWIND_API_KEY"} & environment.keys()
        assert ("REWIND_DATABASE" in environment) == (name != "serve")
        assert ("REWIND_SCHEMA_REGISTRY" in environment) == (name in ("api", "live"))
        assert "PATH" in environment


def _command(pid: int) -> str:
    """Return the command of a child, the argument after the name of its program."""
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")[3]


def _environment(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with."""
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if entry)


@SHARES_SERVICE
def test_a_command_without_a_key_says_how_to_give_one(running: Up, tmp_path: Path) -> None:
    listed = subprocess.run(
        [sys.executable, "-m", "app", "replays", "list", "--api-url", running.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert listed.returncode == 1
    assert "no key found: .rewind/operator.key is missing" in listed.stderr
    assert "--data-dir" in listed.stderr
    assert "REWIND_API_KEY" in listed.stderr


def _running_processes(api: httpx.Client) -> list[str]:
    return [each["kind"] for each in api.get("/processes").json()["items"]]


def _reads(api: httpx.Client, replay_id: str) -> bool:
    job = api.get(f"/replays/{replay_id}").json()
    return job["endOffset"] is not None and job["endOffset"] - job["startOffset"] == 1


@SHARES_SERVICE
def test_a_data_directory_in_use_is_reported_in_one_line(running: Up) -> None:
    with Up(running.folder.parent, "second") as second:
        assert len(second.failure()) == 1
        assert second.output.count("is in use: another process holds") == 1


def test_a_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        for option in ("--port", "--broker-port"):
            port = str(other.getsockname()[1])
            with Up(tmp_path, option, (option, port)) as up:
                (line,) = up.failure()
                assert "address already in use" in line.lower()
                assert "{" not in line
                assert up.output.lower().count("address already in use") == 1


def test_a_database_of_a_later_version_is_reported_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    migrate(f"sqlite:///{folder}/rewind.db")
    with closing(sqlite3.connect(folder / "rewind.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    with Up(tmp_path) as up:
        (line,) = up.failure()
        assert "schema is 9999" in line
        assert up.output.strip() == line


def kill_with_a_second_signal(up: Up) -> None:
    """Stop a service whose processes no longer react to a signal."""
    children = up.children()
    for pid in children:
        os.kill(pid, signal.SIGSTOP)
    until(lambda: all(state(pid) == "T" for pid in children), "all are stopped")
    os.kill(up.pid, signal.SIGINT)
    until(lambda: _has_pending_sigterm(children[-1]), "the worker is to end")
    assert up.stop(signal.SIGTERM) == 0
    assert all(has_ended(pid) for pid in children)


def _has_pending_sigterm(pid: int) -> bool:
    """Return whether SIGTERM is pending for a stopped process."""
    status = Path(f"/proc/{pid}/status").read_text()
    (pending,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd"))
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


# Before the first process, and with two processes ready.
@pytest.mark.parametrize("started", [pytest.param(1, marks=pytest.mark.long), 3])
def test_a_signal_during_the_start_leaves_no_processes(tmp_path: Path, started: int) -> None:
    with Up(tmp_path) as up:
        up.launch()
        until(lambda: len(up.children()) >= started, "a process was started")
        children = up.children()
        assert up.stop(signal.SIGINT) == 0
        # The starting child stops at the end of its standard input, which its parent closed.
        until(lambda: all(has_ended(pid) for pid in children), "every process has ended")


@pytest.mark.long
def test_several_brokers_form_a_cluster_that_survives_a_restart_and_a_second_signal(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    address = zookeeper.fresh_chroot()
    first_port = adjacent_ports(2)
    options = ("--brokers", "2", "--zookeeper", address, "--broker-port", str(first_port))
    bootstrap_servers = f"127.0.0.1:{first_port + 1}"
    for start in ("first", "second"):
        with Up(tmp_path, start, options) as up:
            up.start(READY)
            assert len(up.children()) == 5
            metadata = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(
                timeout=DEADLINE_S
            )
            addresses: dict[int, tuple[Any, int]] = {
                number: (broker.host, broker.port) for number, broker in metadata.brokers.items()
            }
            assert addresses == {number: ("127.0.0.1", first_port + number) for number in (0, 1)}
            partitions = metadata.topics["delivery_log"].partitions.values()
            assert Counter(each.leader for each in partitions) == {0: 8, 1: 8}
            if start == "first":
                assert up.stop(signal.SIGINT) == 0
            else:
                kill_with_a_second_signal(up)
    for number in (0, 1):
        folder = tmp_path / "data" / f"log-{number}"
        assert len(list(folder.glob("delivery_log-*"))) == 8


def test_several_brokers_without_zookeeper_are_a_usage_error(tmp_path: Path) -> None:
    with Up(tmp_path, options=("--brokers", "2")) as up:
        up.launch()
        assert up.wait() == 2
        (line,) = up.output.splitlines()
        assert line.startswith("rewind: REWIND_BROKERS is 2 and REWIND_ZOOKEEPER is not given")
    assert not (tmp_path / "data").exists()


def test_an_unreachable_zookeeper_is_reported_in_one_line(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Up(tmp_path, options=("--zookeeper", address)) as up:
        (line,) = up.failure()
        assert address in line
