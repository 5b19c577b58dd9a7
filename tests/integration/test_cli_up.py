"""`rewind up`: how it starts, what it keeps, and how it ends."""

import os
import signal
import socket
import sqlite3
import subprocess
import sys
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

# They share one that is started once, in one process of the tests.
ON_THE_RUNNING_ONE = pytest.mark.xdist_group("up")


class Up(ServerProcess):
    """`rewind up` on free ports, with its data in a folder."""

    def __init__(self, folder: Path, name: str = "up", options: tuple[str, ...] = ()) -> None:
        self.folder = folder / "data"
        ports = ("--port", "0", "--broker-port", "0")
        command = ("-m", "app", "up", "--data-dir", str(self.folder), *ports, *options)
        super().__init__(command, folder / f"{name}.log", {"REWIND_ALLOW_PRIVATE_TARGETS": "true"})

    def ask(self) -> httpx.Client:
        """Start it: a client of its API with the operator's key."""
        key = self.folder / "operator.key"
        url = self.start(READY)
        return httpx.Client(
            base_url=url,
            headers={"authorization": f"Bearer {key.read_text().strip()}"},
            timeout=DEADLINE_S,
        )

    @property
    def url(self) -> str:
        """Where the API of one that is ready is."""
        (line,) = (each for each in self.said.splitlines() if each.startswith(READY))
        return line.removeprefix(READY)

    def refused(self) -> list[str]:
        """Start it where it cannot: what it said of its own."""
        self.launch()
        assert self.wait() == 1
        return [line for line in self.said.splitlines() if line.startswith("rewind: ")]

    def children(self) -> list[int]:
        """The processes that it has started."""
        threads = Path(f"/proc/{self.pid}/task").iterdir()
        return [int(pid) for each in threads for pid in (each / "children").read_text().split()]


def state(pid: int) -> str:
    """The kernel's letter for what a process does; Z when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def has_ended(pid: int) -> bool:
    return state(pid) == "Z"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One that is ready, for what does not change how it runs."""
    with Up(tmp_path_factory.mktemp("running")) as up:
        up.start(READY)
        yield up


def test_what_was_stored_is_there_after_a_restart(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    window = {"from": (now - timedelta(minutes=5)).isoformat(), "to": now.isoformat()}
    in_east = ("--origin", "east")
    with ReceiverThread() as receiver, Up(tmp_path, options=in_east) as up, up.ask() as api:
        webhook = api.post("/webhooks", json={"url": receiver.url}).json()
        # Nobody else on the machine may read the secrets and the events.
        assert not [each for each in up.folder.rglob("*") if each.stat().st_mode & 0o077]
        event = {"id": "evt_1", "type": "made", "time": window["from"], "data": {}}
        api.post("/events", json=event | {"webhookId": webhook["id"]}).raise_for_status()
        replay = api.post("/replays", json={"webhookId": webhook["id"], **window}).json()
        assert replay["origin"] == "east"
        api.post(f"/replays/{replay['id']}/cancel").raise_for_status()
        until(lambda: _at_work(api) == ["api", "live", "worker"], "all tell that they are at work")
        assert {each["origin"] for each in api.get("/processes").json()["items"]} == {"east"}
        assert up.stop(signal.SIGINT) == 0
        assert '"action": "createKey"' in up.said
        key = (up.folder / "operator.key").read_text()
        assert key.strip() not in up.said
        with closing(sqlite3.connect(up.folder / "rewind.db")) as database:
            assert database.execute("SELECT kind FROM processes").fetchall() == []
    with Up(tmp_path, options=in_east) as up, up.ask() as api:
        assert (up.folder / "operator.key").read_text() == key
        assert '"action": "createKey"' not in up.said
        assert api.get("/webhooks").json()["items"][0]["id"] == webhook["id"]
        assert api.get(f"/replays/{replay['id']}").json()["state"] == "CANCELLED"
        replay = api.post("/replays", json={"webhookId": webhook["id"], **window}).json()
        until(lambda: _reads(api, replay["id"]), "the event that was published before is found")
        assert up.stop() == 0


@ON_THE_RUNNING_ONE
def test_the_operators_key_opens_the_api_to_who_may_read_it(running: Up) -> None:
    url = f"{running.url}/webhooks"
    key = running.folder / "operator.key"
    authorization = {"authorization": f"Bearer {key.read_text().strip()}"}
    assert httpx.get(url, headers=authorization, timeout=DEADLINE_S).status_code == 200
    assert httpx.get(url, timeout=DEADLINE_S).status_code == 401
    assert running.folder.stat().st_mode & 0o777 == 0o700


@ON_THE_RUNNING_ONE
def test_a_command_in_the_same_folder_needs_no_more_than_the_service(
    running: Up, tmp_path: Path
) -> None:
    event = '{"id": "evt_1", "type": "made", "time": "2026-11-21T00:00:00Z", "data": {}}'
    (tmp_path / ".rewind").symlink_to(running.folder)
    published = subprocess.run(
        [sys.executable, "-m", "app", "publish", "-", "--api-url", running.url],
        cwd=tmp_path,
        input=event,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (published.returncode, published.stdout) == (0, "1\n"), published.stderr


def _at_work(api: httpx.Client) -> list[str]:
    return [each["kind"] for each in api.get("/processes").json()["items"]]


def _reads(api: httpx.Client, replay_id: str) -> bool:
    job = api.get(f"/replays/{replay_id}").json()
    return job["endOffset"] is not None and job["endOffset"] - job["startOffset"] == 1


@ON_THE_RUNNING_ONE
def test_a_second_one_on_the_same_folder_is_refused_in_one_line(running: Up) -> None:
    with Up(running.folder.parent, "second") as second:
        assert len(second.refused()) == 1
        assert second.said.count("is in use: another process holds") == 1


def test_a_taken_port_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        for option in ("--port", "--broker-port"):
            port = str(other.getsockname()[1])
            with Up(tmp_path, option, (option, port)) as up:
                (line,) = up.refused()
                assert "address already in use" in line.lower()
                assert "{" not in line
                assert up.said.lower().count("address already in use") == 1


def test_a_database_of_a_later_version_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    migrate(f"sqlite:///{folder}/rewind.db")
    with closing(sqlite3.connect(folder / "rewind.db")) as database, database:
        database.execute("UPDATE alembic_version SET version_num = '9999'")
    with Up(tmp_path) as up:
        (line,) = up.refused()
        assert "schema is 9999" in line
        assert up.said.strip() == line


def test_a_second_signal_ends_what_does_not_end(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.start(READY)
        children = up.children()
        assert len(children) == 4
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        until(lambda: all(state(pid) == "T" for pid in children), "all are stopped")
        os.kill(up.pid, signal.SIGINT)
        until(lambda: _is_asked_to_end(children[-1]), "the worker is to end")
        assert up.stop(signal.SIGTERM) == 0
        assert all(has_ended(pid) for pid in children)


def _is_asked_to_end(pid: int) -> bool:
    """Whether SIGTERM waits for a process that is stopped."""
    status = Path(f"/proc/{pid}/status").read_text()
    (pending,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd"))
    return bool(int(pending, 16) >> (signal.SIGTERM - 1) & 1)


# The first has nothing before it; before the third, two are ready.
@pytest.mark.parametrize("started", [1, 3])
def test_a_signal_while_it_starts_leaves_nothing_behind(tmp_path: Path, started: int) -> None:
    with Up(tmp_path) as up:
        up.launch()
        until(lambda: len(up.children()) >= started, "a process was started")
        children = up.children()
        assert up.stop(signal.SIGINT) == 0
        # One that was being started was told by its standard input, which closed with its parent.
        until(lambda: all(has_ended(pid) for pid in children), "every process has ended")


def test_all_end_when_one_does(tmp_path: Path) -> None:
    with Up(tmp_path) as up:
        up.start(READY)
        children = up.children()
        os.kill(children[-1], signal.SIGKILL)
        assert up.wait() == 1
        assert "rewind: rewind worker exited with code -9" in up.said
        assert all(has_ended(pid) for pid in children)


def test_several_brokers_share_the_log_and_keep_it_over_a_restart(
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
            assert up.stop(signal.SIGINT) == 0
    for number in (0, 1):
        folder = tmp_path / "data" / f"log-{number}"
        assert len(list(folder.glob("delivery_log-*"))) == 8


def test_several_brokers_without_a_zookeeper_are_misused_in_one_line(tmp_path: Path) -> None:
    with Up(tmp_path, options=("--brokers", "2")) as up:
        up.launch()
        assert up.wait() == 2
        (line,) = up.said.splitlines()
        assert line.startswith("rewind: REWIND_BROKERS is 2 and REWIND_ZOOKEEPER is not given")
    assert not (tmp_path / "data").exists()


def test_a_zookeeper_that_does_not_answer_is_named_in_one_line(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    with Up(tmp_path, options=("--zookeeper", address)) as up:
        (line,) = up.refused()
        assert address in line
