"""`logbroker` as its users run it, with the address of the brokers in the environment."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from tests.support.processes.fork_server import fork_server
from tests.support.processes.waiting import DEADLINE_S

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def logbroker_command(bootstrap_servers: str, *beginning: str) -> Run:
    """Return a function that runs `logbroker BEGINNING ARGUMENTS` and waits for its end."""
    environment = {**os.environ, "LOGBROKER_BOOTSTRAP_SERVERS": bootstrap_servers}

    def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "logbroker", *beginning, *arguments]
        with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
            process = fork_server.start(command, environment, stdout.fileno(), stderr.fileno())
            process.stdin.close()
            code = process.wait(DEADLINE_S)
            stdout.seek(0)
            stderr.seek(0)
            return subprocess.CompletedProcess(command, code, stdout.read(), stderr.read())

    return run
