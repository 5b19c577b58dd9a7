"""`rewind listen` as a process: its output, and Ctrl-C."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from app.domain.delivery import AttemptOutcome, Delivered, Rejected
from app.webhooks.challenge import ping_body
from app.webhooks.guard import Guard
from app.webhooks.request import webhook_headers
from app.webhooks.sender import WebhookSender
from app.webhooks.signing import new_secret
from tests.support.processes.waiting import DEADLINE_S

SECRET = new_secret()
LISTEN = [sys.executable, "-m", "app", "listen", "--port", "0"]
Listener = subprocess.Popen[str]


@contextmanager
def listener(*options: str, secret: str | None = SECRET) -> Iterator[tuple[Listener, str]]:
    """Run the process. Yields it with its URL."""
    process = subprocess.Popen(
        [*LISTEN, *options],
        env=os.environ | ({} if secret is None else {"REWIND_SECRET": secret}),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr is not None
            ready = process.stderr.readline()
            assert ready.startswith("rewind listen ready on http://127.0.0.1:"), ready
            yield process, ready.split()[-1]
        finally:
            process.kill()


def run(*options: str) -> subprocess.CompletedProcess[str]:
    """Run the process until it ends by itself."""
    return subprocess.run([*LISTEN, *options], check=False, capture_output=True, text=True)


def end(process: Listener) -> tuple[str, str]:
    """Send SIGINT. Returns standard output and standard error."""
    process.send_signal(signal.SIGINT)
    printed = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    return printed


def post(url: str, event_id: str, body: bytes, secret: str = SECRET) -> AttemptOutcome:
    async def send() -> AttemptOutcome:
        headers = webhook_headers([secret], event_id, int(time.time()), body, "rpl_1")
        async with WebhookSender(Guard(allow_private=True)) as sender:
            return await sender.send(url, headers, body)

    return asyncio.run(send())


@pytest.mark.processes
def test_each_webhook_is_a_line_and_ctrl_c_prints_the_counts() -> None:
    with listener() as (process, url):
        assert post(url, "evt_1", b'{"type": "follow"}') == Delivered(204)
        assert isinstance(post(url, "evt_2", b"no json", new_secret()), Rejected)
        out, err = end(process)
    first, second = out.splitlines()
    assert first.split()[1:] == ["evt_1", "follow", "rpl_1", "verified"]
    assert second.split()[1:5] == ["evt_2", "-", "rpl_1", "refused"]
    assert "2 webhooks received: 1 verified, 1 refused, 0 unchecked; 0 pings, 0 challenges" in err
    assert SECRET not in out + err


def get(url: str) -> int:
    async def ask() -> AttemptOutcome:
        async with WebhookSender(Guard(allow_private=True)) as sender:
            outcome, _ = await sender.get(url, {"crc_token": "x"}, {}, body_bytes_max=1_000)
            return outcome

    outcome = asyncio.run(ask())
    assert isinstance(outcome, Delivered | Rejected)
    return outcome.status


@pytest.mark.processes
def test_without_a_secret_pings_are_accepted_and_challenges_are_not() -> None:
    with listener(secret=None) as (process, url):
        assert post(url, "ping_1", ping_body("wh_1", 0)) == Delivered(204)
        assert get(url) == 403
        out, err = end(process)
    ping, challenge = out.splitlines()
    assert ping.split()[1:] == ["ping_1", "webhook.ping", "rpl_1", "unchecked"]
    assert challenge.split()[1:5] == ["-", "challenge", "-", "refused"]
    assert "0 webhooks received: 0 verified, 0 refused, 0 unchecked; 1 pings, 1 challenges" in err


@pytest.mark.processes
def test_with_a_secret_a_challenge_is_answered() -> None:
    with listener("--json", "--status", "503") as (process, url):
        assert get(url + "/a") == 200
        out, _ = end(process)
    line = json.loads(out)
    assert line.pop("time").endswith("Z")
    assert line == {"path": "/a?crc_token=x", "type": "challenge", "isAnswered": True}


@pytest.mark.processes
def test_bodies_are_printed_with_control_characters_escaped() -> None:
    body = '{"type": "follow", "who": "\u00fc \\n"}\n\x1b[2J'.encode()
    with listener("--body") as (process, url):
        post(url, "evt_1", body)
        out, _ = end(process)
    (line,) = out.splitlines()
    assert line.endswith('  verified  {"type": "follow", "who": "\u00fc \\n"}\ufffd\ufffd[2J')
    with listener("--body", "--json") as (process, url):
        post(url, "evt_1", body)
        post(url, "evt_2", b"\xff")
        out, _ = end(process)
    assert [json.loads(each)["body"] for each in out.splitlines()] == [body.decode(), "\ufffd"]


@pytest.mark.processes
def test_json_lines_and_another_status() -> None:
    with listener("--json", "--status", "503") as (process, url):
        assert isinstance(post(url + "/a", "evt_1", b'{"type": 5}'), Rejected)
        out, _ = end(process)
    line = json.loads(out)
    assert line.pop("time").endswith("Z")
    assert line == {
        "path": "/a",
        "eventId": "evt_1",
        "type": None,
        "replayId": "rpl_1",
        "status": 503,
        "signature": "verified",
        "problem": None,
    }


@pytest.mark.processes
def test_control_characters_of_an_event_type_are_escaped() -> None:
    with listener() as (process, url):
        post(url, "evt_1", json.dumps({"type": "\x1b[2J\n"}).encode())
        out, _ = end(process)
    assert "\x1b" not in out
    assert len(out.splitlines()) == 1


@pytest.mark.processes
def test_a_closed_standard_output_ends_the_process() -> None:
    with listener() as (process, url):
        assert process.stdout is not None
        process.stdout.close()
        post(url, "evt_1", b"{}")
        assert process.wait(timeout=DEADLINE_S) == 0


@pytest.mark.processes
@pytest.mark.parametrize("secret", ["word", "whsec_AAAA"])
def test_an_invalid_secret_is_rejected_and_not_printed(secret: str) -> None:
    ended = run("--secret", secret)
    assert ended.returncode == 2
    assert "the secret " in ended.stderr
    assert secret not in ended.stderr


@pytest.mark.processes
def test_a_port_in_use_is_reported() -> None:
    with listener() as (_, url):
        port = url.rpartition(":")[2]
        ended = run("--port", port)
    assert ended.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port}: " in ended.stderr
