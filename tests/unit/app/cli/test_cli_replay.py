"""`rewind replay` with failures of the API."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from click.testing import CliRunner, Result

from app.cli.replay import replay
from tests.support.processes.waiting import until

NOTHING = {"delivered": 0, "duplicates": 0, "failed": 0}
JOB = {"id": "rpl_1", "state": "OPEN", "counts": NOTHING}


@contextmanager
def server(answers: list[tuple[int, bytes]]) -> Iterator[str]:
    """Run a server that sends these responses in order, and then closes connections."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_GET(self) -> None:
            if answers:
                status, body = answers.pop(0)
                self.send_response(status)
                self.send_header("location", "/elsewhere")
                self.end_headers()
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


WINDOW = ("--from", "202611210000", "--to", "202611210100")


def run_replay(url: str, *words: str) -> Result:
    return CliRunner().invoke(replay, ["wh_1", *WINDOW, "--api-url", url, *words])


def test_the_error_after_a_lost_connection_has_the_id_of_the_replay() -> None:
    with server([(202, json.dumps(JOB).encode())]) as url:
        result = run_replay(url)
    assert result.exit_code == 1
    assert "rewind: lost track of rpl_1, which may still be running" in result.stderr
    assert result.stdout == ""


def test_another_server_is_reported_as_not_a_rewind_api() -> None:
    for status, body in ((200, b"<html>"), (302, b"")):
        with server([(status, body)]) as url:
            result = run_replay(url)
        assert (result.exit_code, type(result.exception)) == (1, SystemExit)
        assert "is not a Rewind API: response '<html>'" in result.stderr or "302" in result.stderr


def test_a_failed_replay_is_reported_with_the_error_and_a_retry_command() -> None:
    end = {"state": "FAILED", "error": "the receiver took none", "counts": {**NOTHING, "failed": 7}}
    with server([(202, json.dumps(JOB).encode()), (200, json.dumps(JOB | end).encode())]) as url:
        result = run_replay(url)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["state"] == "FAILED"
    assert "rewind: rpl_1 is FAILED; the receiver took none; 7 events" in result.stderr
    assert "`rewind replays retry rpl_1`" in result.stderr


ACTIVE = {"title": "The webhook has an active replay", "detail": "", "replayId": "rpl_0"}
RECOVERY = JOB | {"id": "rpl_0", "reason": "recovery"}
COMPLETED = {"state": "COMPLETED"}


def test_a_replay_is_created_once_the_recovery_of_the_webhook_has_ended() -> None:
    documents: list[tuple[int, dict[str, Any]]] = [
        (409, ACTIVE),
        (200, RECOVERY),
        (200, RECOVERY | COMPLETED),
        (202, JOB),
        (200, JOB | COMPLETED),
    ]
    with server([(status, json.dumps(body).encode()) for status, body in documents]) as url:
        result = run_replay(url)
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout) == JOB | COMPLETED
    assert "waiting for the recovery replay rpl_0 of the webhook" in result.stderr


@pytest.mark.parametrize(
    ("reason", "words"), [("request", ()), ("recovery", ("--no-wait",))], ids=("other", "no-wait")
)
def test_an_active_replay_is_not_waited_for(reason: str, words: tuple[str, ...]) -> None:
    active = RECOVERY | {"reason": reason}
    answers = [(409, json.dumps(ACTIVE).encode()), (200, json.dumps(active).encode())]
    with server(answers) as url:
        result = run_replay(url, *words)
    assert result.exit_code == 1
    assert "409 The webhook has an active replay" in result.stderr


@pytest.mark.processes
@pytest.mark.parametrize(
    ("first", "followed", "shown"),
    [
        (
            (202, JOB),
            JOB,
            "rpl_1 is still running; cancel it with `rewind replays cancel rpl_1`",
        ),
        ((409, ACTIVE), RECOVERY, "no replay was created; the recovery replay continues"),
    ],
    ids=("created", "recovery"),
)
def test_ctrl_c_prints_what_continues(
    first: tuple[int, dict[str, Any]], followed: dict[str, Any], shown: str
) -> None:
    status, document = first
    answers = [(status, json.dumps(document).encode())]
    answers += 1_000 * [(200, json.dumps(followed).encode())]
    with server(answers) as url:
        command = [sys.executable, "-m", "app", "replay", "wh_1", *WINDOW, "--api-url", url]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: len(answers) < 998, "it follows a replay")
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            error = process.stderr.read()
    assert process.returncode == 1
    assert shown in error
