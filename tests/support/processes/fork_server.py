"""Start the project's programs as forks of a process that has imported them.

The child runs `python -m PROGRAM ARGUMENTS` or `python -c CODE ARGUMENTS` from its first line; only
the interpreter's start and the imports of our programs are shared. Variables that the interpreter
itself reads, such as PYTHONPATH, therefore have the value of the test run. Tests that start
programs through a shell or `logbroker.embedded` cover the real start.
"""

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from tests.support.processes.fork_server_main import PROGRAMS, SCRIPTS

KNOWN: Final = {*PROGRAMS, *SCRIPTS}

MAIN: Final = "tests.support.processes.fork_server_main"


class ForkedProcess:
    """A forked process with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, report: IO[bytes], stdin: IO[bytes]) -> None:
        self.stdin = stdin
        self._report = report
        self._exit_code: int | None = None
        self.pid = int(report.readline())

    def poll(self) -> int | None:
        """Return the exit code, the negative signal number, or None while it runs."""
        if self._exit_code is None and select.select([self._report], [], [], 0)[0]:
            self._exit_code = int(self._report.readline())
            self._report.close()
        return self._exit_code

    def wait(self, timeout: float) -> int:
        """Wait for the end and return the exit code.

        Raises:
            subprocess.TimeoutExpired: it ran on for `timeout` seconds.
        """
        if self._exit_code is None:
            select.select([self._report], [], [], timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """The forking process. It starts at its first use."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def can_start(self, command: Sequence[str]) -> bool:
        """Report whether a command is `python -c`, or `python -m` of a program of the project."""
        if command[:2] == [sys.executable, "-m"]:
            return command[2] in KNOWN
        return command[:2] == [sys.executable, "-c"]

    def start(
        self, command: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int
    ) -> ForkedProcess:
        """Start a command for which `can_start` is true. Its standard input is a pipe."""
        document = {
            "arguments": list(command[1:]),
            "environment": dict(environment),
            "folder": str(Path.cwd()),
        }
        read_stdin, write_stdin = os.pipe()
        read_report, write_report = os.pipe()
        channel = self._opened()
        descriptors = [read_stdin, stdout, stderr, write_report]
        socket.send_fds(channel, [json.dumps(document).encode()], descriptors)
        os.close(read_stdin)
        os.close(write_report)
        return ForkedProcess(os.fdopen(read_report, "rb", 0), os.fdopen(write_stdin, "wb", 0))

    def _opened(self) -> socket.socket:
        if self._channel is None:
            self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", MAIN, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    # Tests handle Ctrl-C and stop the processes that they started.
                    start_new_session=True,
                )
        return self._channel

    def close(self) -> None:
        """Stop the forking process. Forked processes continue."""
        if self._channel is not None and self._process is not None:
            self._channel.close()
            self._process.wait()
            self._channel = None


fork_server: Final = ForkServer()
"""The fork server of this test process."""
