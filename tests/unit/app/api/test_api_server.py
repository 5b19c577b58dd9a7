import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.config import Settings
from app.store import Store
from tests.support.http.api_clients import Issued
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until

pytestmark = pytest.mark.processes

PROGRAM = """
import sys
from app.api.application import create_app
from app.config import Settings
from app.http.server import serve
sys.exit(serve(Settings.model_validate_json(sys.argv[1]), create_app))
"""


READY = "rewind api ready on "


def server(settings: Settings, folder: Path) -> ServerProcess:
    """Return an API with these settings."""
    return ServerProcess(["-c", PROGRAM, settings.model_dump_json()], folder / "api.stderr")


@pytest.fixture
def process(settings: Settings, store: Store, tmp_path: Path) -> Iterator[ServerProcess]:
    with server(settings.model_copy(update={"port": 0}), tmp_path) as process:
        yield process


def lines(process: ServerProcess, kind: str) -> list[dict[str, Any]]:
    """Return the log lines of a kind so far."""
    return [json.loads(line) for line in process.output.splitlines() if f'"{kind}"' in line]


def logged(process: ServerProcess, kind: str) -> dict[str, Any]:
    """Wait for the first log line of a kind and return it."""
    until(lambda: lines(process, kind), f"a line of the kind {kind}")
    return lines(process, kind)[0]


def test_a_client_that_disconnects_during_its_body_causes_no_error(
    process: ServerProcess, operator: Issued
) -> None:
    url = httpx.URL(process.start(READY))
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(
            b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: 100\r\n\r\n[{" % operator[1].encode()
        )
    request = logged(process, "request")
    process.stop()

    assert (request["path"], request["status"]) == ("/events", 400)
    assert "Traceback" not in process.output


def test_the_process_reports_its_address_and_stops_on_a_signal(process: ServerProcess) -> None:
    answer = httpx.get(process.start(READY) + "/healthz", timeout=DEADLINE_S)

    assert answer.status_code == 200
    assert "server" not in answer.headers
    assert process.stop(signal.SIGTERM) == 0
    requests = lines(process, "request")
    assert [(line["path"], line["status"]) for line in requests] == [("/healthz", 200)]


def test_a_forwarded_header_does_not_change_the_client_in_the_audit_log(
    process: ServerProcess,
) -> None:
    url = process.start(READY) + "/webhooks/wh_1"
    httpx.delete(
        url,
        headers={"x-forwarded-for": "192.0.2.7", "forwarded": "for=192.0.2.7"},
        timeout=DEADLINE_S,
    )
    change = logged(process, "change")
    assert (change["target"], change["client"]) == ("wh_1", "127.0.0.1")


def test_a_trusted_proxy_names_the_client_in_the_audit_log(
    settings: Settings, store: Store, tmp_path: Path
) -> None:
    given = {"port": 0, "trusted_proxies": "127.0.0.0/8", "forwarded_header": "forwarded"}
    with server(settings.model_copy(update=given), tmp_path) as process:
        url = process.start(READY) + "/webhooks/wh_1"
        httpx.delete(
            url,
            headers={"x-forwarded-for": "192.0.2.8", "forwarded": "for=192.0.2.7"},
            timeout=DEADLINE_S,
        )
        assert logged(process, "change")["client"] == "192.0.2.7"


def test_an_address_in_use_ends_the_process_with_an_error(
    settings: Settings, tmp_path: Path
) -> None:
    with socket.create_server((settings.host, 0)) as other:
        port = other.getsockname()[1]
        with server(settings.model_copy(update={"port": port}), tmp_path) as process:
            process.launch()
            assert process.wait() == 1
    assert "address already in use" in process.output
    assert "Traceback" not in process.output
