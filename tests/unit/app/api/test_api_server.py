import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import httpx
import pytest

from app.config import Settings
from app.store import Store
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.processes

PROGRAM = """
import sys
from app.api.application import create_app
from app.config import Settings
from app.http.server import serve
sys.exit(serve(Settings.model_validate_json(sys.argv[1]), create_app))
"""


@pytest.fixture
def process(settings: Settings, store: Store) -> Iterator["subprocess.Popen[str]"]:
    given = settings.model_copy(update={"port": 0}).model_dump_json()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, given], stderr=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def ready_url(stderr: IO[str]) -> str:
    for line in stderr:
        if line.startswith("rewind api ready on "):
            return line.split()[-1]
    raise AssertionError("the server ended before it was ready")


def test_a_client_that_disconnects_during_its_body_causes_no_error(
    process: "subprocess.Popen[str]", operator: Issued
) -> None:
    assert process.stderr is not None
    url = httpx.URL(ready_url(process.stderr))
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(
            b"POST /events HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer %b\r\nContent-Length: 100\r\n\r\n[{" % operator[1].encode()
        )
    request = next(json.loads(line) for line in process.stderr if '"request"' in line)
    process.terminate()

    assert (request["path"], request["status"]) == ("/events", 400)
    assert "Traceback" not in process.stderr.read()


def test_the_process_reports_its_address_and_stops_on_a_signal(
    process: "subprocess.Popen[str]",
) -> None:
    assert process.stderr is not None
    answer = httpx.get(ready_url(process.stderr) + "/healthz")
    process.send_signal(signal.SIGTERM)
    said = process.stderr.read().splitlines()

    assert answer.status_code == 200
    assert "server" not in answer.headers
    assert process.wait() == 0
    requests = [json.loads(line) for line in said if '"request"' in line]
    assert [(line["path"], line["status"]) for line in requests] == [("/healthz", 200)]


def test_a_forwarded_header_does_not_change_the_client_in_the_audit_log(
    process: "subprocess.Popen[str]",
) -> None:
    assert process.stderr is not None
    url = ready_url(process.stderr) + "/webhooks/wh_1"
    httpx.delete(url, headers={"x-forwarded-for": "192.0.2.7", "forwarded": "for=192.0.2.7"})
    change = next(json.loads(line) for line in process.stderr if '"change"' in line)
    assert (change["target"], change["client"]) == ("wh_1", "127.0.0.1")


def test_a_trusted_proxy_names_the_client_in_the_audit_log(settings: Settings) -> None:
    given = {"port": 0, "trusted_proxies": "127.0.0.0/8", "forwarded_header": "forwarded"}
    arguments = [sys.executable, "-c", PROGRAM, settings.model_copy(update=given).model_dump_json()]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = ready_url(process.stderr) + "/webhooks/wh_1"
        httpx.delete(url, headers={"x-forwarded-for": "192.0.2.8", "forwarded": "for=192.0.2.7"})
        change = next(json.loads(line) for line in process.stderr if '"change"' in line)
        process.kill()
    assert change["client"] == "192.0.2.7"


def test_an_address_in_use_ends_the_process_with_an_error(settings: Settings) -> None:
    with socket.create_server((settings.host, 0)) as other:
        port = other.getsockname()[1]
        given = settings.model_copy(update={"port": port}).model_dump_json()
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM, given], stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1
    assert "address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
