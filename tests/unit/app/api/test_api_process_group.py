"""`rewind api --processes 2`: one address, one sum of metrics, one end."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.config import Settings
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = pytest.mark.processes

READY = "rewind api ready on "
REQUESTS = 20


def two_processes(settings: Settings, folder: Path, port: int = 0) -> ServerProcess:
    environment = {
        "REWIND_DATA_DIR": str(settings.data_dir),
        "REWIND_DATABASE": settings.database,
        "REWIND_BOOTSTRAP_SERVERS": settings.bootstrap_servers,
        "REWIND_PORT": str(port),
    }
    return ServerProcess(
        ["-m", "app", "api", "--processes", "2"],
        folder / "api.stderr",
        environment,
        # The metrics choose how they are counted when they are imported.
        is_forked=False,
    )


@pytest.fixture
def process(settings: Settings, store: Store, tmp_path: Path) -> Iterator[ServerProcess]:
    with two_processes(settings, tmp_path) as process:
        yield process


def start(process: ServerProcess) -> str:
    """Start both processes and return their address."""
    url = process.start(READY)
    until(lambda: process.output.count(READY) == 2, "both processes are ready")
    return url


def get(url: str, operator: Issued) -> httpx.Response:
    headers = {"authorization": f"Bearer {operator[1]}"}
    return httpx.get(url, headers=headers, timeout=DEADLINE_S)


def children(process: ServerProcess) -> list[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(each) for each in text.split()]


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_metrics_are_those_of_both_processes(process: ServerProcess, operator: Issued) -> None:
    url = start(process)
    for _ in range(REQUESTS):
        assert httpx.get(f"{url}/healthz", timeout=DEADLINE_S).status_code == 200

    def counted() -> list[str]:
        text = get(f"{url}/metrics", operator).text
        return re.findall(
            r'^rewind_http_requests_total.*"/healthz".* ([0-9.]+)$', text, re.MULTILINE
        )

    until(lambda: counted() == [f"{REQUESTS}.0"], "all requests are counted")
    # Each scrape has a connection of its own, and so reaches either process.
    assert all(counted() == [f"{REQUESTS}.0"] for _ in range(10))
    assert process.stop() == 0


def test_the_end_of_one_process_ends_the_others(process: ServerProcess) -> None:
    start(process)
    one, other = children(process)
    os.kill(one, signal.SIGKILL)
    assert process.wait() == signal.SIGKILL
    assert is_gone(other)


def test_processes_do_not_outlive_the_first_one(process: ServerProcess) -> None:
    start(process)
    ours = children(process)
    process.kill()
    until(lambda: all(map(is_gone, ours)), "the other processes end")


def test_an_address_in_use_is_reported(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server((settings.host, 0)) as other:
        port = other.getsockname()[1]
        with two_processes(settings, tmp_path, port) as process:
            process.launch()
            assert process.wait() == 1
    assert f"cannot listen on {settings.host}:{port}: Address already in use" in process.output
