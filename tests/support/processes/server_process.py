"""Server processes and their faults."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn, Self

import pytest

from tests.support.processes.fork_server import ForkedProcess, fork_server
from tests.support.processes.waiting import DEADLINE_S, until

SECRET_KEY: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
"""The key of webhook secrets of all processes that are given none."""

STDOUT = 1
"""The descriptor."""

OUTPUT_LINES = 40
"""The number of output lines that a failed test shows."""


def require_program(name: str, package: str) -> str:
    """Return the path of a Debian package's program. If it is missing, skip, or fail in CI."""
    found = shutil.which(name)
    if found is None:
        skip_or_fail_in_ci(f"{name} is not installed; `make services` installs {package}")
    return found


def skip_or_fail_in_ci(reason: str) -> NoReturn:
    """Skip the test, which lacks something. In CI, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


class ServerProcess:
    """`python ARGUMENTS` with its standard error in the file `output`, and ways to harm it.

    It is forked from a process that has imported our programs, unless its memory is measured.
    A context manager: at its end the process is gone, whatever state it is in. A test that fails
    meanwhile shows the last output of the process.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        output: Path,
        environment: Mapping[str, str] | None = None,
        *,
        is_forked: bool = True,
    ) -> None:
        self._command = [sys.executable, *arguments]
        self._is_forked = is_forked
        self._folder: Path | None = None
        self._output_file = output
        given = environment or {}
        has_key = {"REWIND_SECRET_KEY", "REWIND_SECRET_KEY_FILE"} & given.keys()
        key = {} if has_key else {"REWIND_SECRET_KEY": SECRET_KEY}
        self._environment = {**os.environ, **key, **given}
        self._stdout: int | None = None
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self.kill()
        if any(error):
            print(f"{self._output_file}:", *self.output.splitlines()[-OUTPUT_LINES:], sep="\n")

    @property
    def output(self) -> str:
        """Return the standard error output so far."""
        return self._output_file.read_text(errors="replace") if self._output_file.exists() else ""

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def launch(self) -> None:
        """Start the process without waiting."""
        with self._output_file.open("w") as file:
            if self._is_forked and fork_server.can_start(self._command):
                self._process = fork_server.start(
                    self._command, self._environment, STDOUT, file.fileno()
                )
                return
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=self._stdout,
                stderr=file,
                env=self._environment,
                cwd=self._folder,
            )

    def start(self, ready: str) -> str:
        """Start the process, wait for a line that begins with `ready`, and return its rest."""
        self.launch()
        until(lambda: self._line(ready) is not None or self.exit_code is not None, ready)
        line = self._line(ready)
        assert line is not None, f"exit code {self.exit_code}: {self.output}"
        return line

    @property
    def exit_code(self) -> int | None:
        """The exit code, or None while the process runs."""
        assert self._process is not None
        return self._process.poll()

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Wait until the process ends by itself, and return the exit code."""
        assert self._process is not None
        code = self._process.wait(deadline_s)
        self._close_stdin()
        return code

    def resident_bytes(self) -> int:
        """Return the resident memory of the process in bytes."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def until_says(self, text: str) -> None:
        until(lambda: text in self.output, f"{text!r} in {self._output_file}")

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self._signal(signal.SIGKILL)
        self.wait()

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send SIGTERM, wait for the end, and return the exit code."""
        self._signal(number)
        return self.wait()

    def pause(self) -> None:
        """Send SIGSTOP and wait until the process is stopped."""
        self._signal(signal.SIGSTOP)
        until(lambda: self._state() == "T", "the process is stopped")

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def close_stdin(self) -> None:
        """Close standard input, as the death of a parent process does."""
        self._close_stdin()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(number)

    def _state(self) -> str:
        # The command name may contain brackets, so the last bracket ends it.
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def _line(self, prefix: str) -> str | None:
        for line in self.output.splitlines():
            if line.startswith(prefix):
                return line.removeprefix(prefix).strip()
        return None

    def _close_stdin(self) -> None:
        assert self._process is not None
        if self._process.stdin is not None:
            self._process.stdin.close()


class ShellProcess(ServerProcess):
    """A server that is started by a shell command line in `folder`."""

    def __init__(
        self, command: str, folder: Path, output: Path, environment: Mapping[str, str]
    ) -> None:
        super().__init__([], output, environment)
        # As in a terminal, without a key of the tests.
        self._environment = {**os.environ, **environment}
        # `exec` replaces the shell, so that signals reach the program.
        self._command = ["sh", "-c", f"exec {command}"]
        self._folder = folder
        self._stdout = subprocess.DEVNULL
