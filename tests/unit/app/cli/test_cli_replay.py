"""`rewind replay` and an API that is another server, or goes away."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from click.testing import CliRunner, Result

from app.cli.replay import replay
from tests.support.processes.waiting import until

NOTHING = {"delivered": 0, "duplicates": 0, "failed": 0}
JOB = {"id": "rpl_1", "state": "OPEN", "counts": NOTHING}


@contextmanager
def server(answers: list[tuple[int, bytes]]) -> Iterator[str]:
    """A server that gives these answers, one for each request, and then closes what comes."""

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


def ask(url: str) -> Result:
    return CliRunner().invoke(replay, ["wh_1", *WINDOW, "--api-url", url])


def test_an_api_that_goes_away_leaves_the_name_of_the_replay() -> None:
    with server([(202, json.dumps(JOB).encode())]) as url:
        result = ask(url)
    assert result.exit_code == 1
    assert "rewind: lost sight of rpl_1, which may go on" in result.stderr
    assert result.stdout == ""


def test_a_server_that_is_no_rewind_api_is_said_to_be_none() -> None:
    for status, body in ((200, b"<html>"), (302, b"")):
        with server([(status, body)]) as url:
            result = ask(url)
        assert (result.exit_code, type(result.exception)) == (1, SystemExit)
        assert "is no Rewind API: it answers '<html>'" in result.stderr or "302" in result.stderr


def test_a_replay_that_did_not_bring_all_says_why_and_what_to_do() -> None:
    end = {"state": "FAILED", "error": "the receiver took none", "counts": {**NOTHING, "failed": 7}}
    with server([(202, json.dumps(JOB).encode()), (200, json.dumps(JOB | end).encode())]) as url:
        result = ask(url)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["state"] == "FAILED"
    assert "rewind: rpl_1 is FAILED; the receiver took none; 7 events" in result.stderr
    assert "`rewind replays retry rpl_1`" in result.stderr


@pytest.mark.processes
def test_ctrl_c_says_that_the_replay_goes_on() -> None:
    answers = [(202, json.dumps(JOB).encode())] + 1_000 * [(200, json.dumps(JOB).encode())]
    with server(answers) as url:
        command = [sys.executable, "-m", "app", "replay", "wh_1", *WINDOW, "--api-url", url]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            until(lambda: len(answers) < 1_000, "it follows the replay")
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            said = process.stderr.read()
    assert process.returncode == 1
    assert "rpl_1 goes on; `rewind replays cancel rpl_1` stops it" in said
