"""A broker that runs as a child process of the program that needs it."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

STOP_S: Final = 30.0
"""How long to wait for a child to stop before it is killed."""

_INHERITED: Final = frozenset(
    ("HOME", "LANG", "LANGUAGE", "LD_LIBRARY_PATH", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER")
)
_INHERITED_PREFIXES: Final = ("COVERAGE_", "KRB5", "LC_", "MALLOC_", "PYTHON", "SSL_CERT_")
"""What Python, OpenSSL, Kerberos and the C library read; measuring coverage in tests, too."""


def inherited_environment(environ: Mapping[str, str], *prefixes: str) -> dict[str, str]:
    """The variables of `environ` that every program needs, and those with one of `prefixes`.

    Others may hold secrets of other programs.
    """
    allowed = (*_INHERITED_PREFIXES, *prefixes)
    return {
        name: value
        for name, value in environ.items()
        if name in _INHERITED or name.startswith(allowed)
    }


class ChildDidNotStart(Exception):
    """The process ended before it was ready; the message is its last line of output."""


class ChildProcess:
    """A server that runs as a child process and ends with its parent, even if that is killed.

    The child's standard input is a pipe from the parent, which the kernel closes when the parent
    ends. With `--stop-on-stdin-close` the child then stops cleanly. Each line on the child's
    standard error goes to `write_line`, except the line that reports readiness.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        ready_prefix: str,
        environment: Mapping[str, str] | None = None,
        write_line: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        """Prepare to run `python ARGUMENTS`, whose ready line starts with `ready_prefix`.

        `environment` is the child's whole environment; None is what every program needs.
        """
        if environment is None:
            environment = inherited_environment(os.environ)
        self._arguments = arguments
        self._ready_prefix = ready_prefix
        self._environment = environment
        self._write_line = write_line
        self._process: subprocess.Popen[str] | None = None
        self._passing_on: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The child's exit code; None before it has ended."""
        return None if self._process is None else self._process.poll()

    def start(self) -> str:
        """Start the child, wait until it is ready, and return the rest of its ready line.

        Raises:
            ChildDidNotStart: the child ended first; the message is the reason.
        """
        self._process = subprocess.Popen(
            [sys.executable, *self._arguments, "--stop-on-stdin-close"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            # Ctrl-C in a terminal signals only the parent, which stops its children in order.
            start_new_session=True,
        )
        assert self._process.stderr is not None
        rest = self._wait_until_ready(self._process.stderr)
        self._passing_on = threading.Thread(target=self._pass_on, args=(self._process.stderr,))
        self._passing_on.start()
        return rest

    def stop(self) -> None:
        """Stop the child cleanly, or kill it after `STOP_S` seconds; idempotent."""
        if self._process is None:
            return
        self._process.terminate()
        self.wait(STOP_S)

    def kill(self) -> None:
        """Kill the child, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self.wait(STOP_S)

    def wait(self, timeout_s: float) -> None:
        """Wait for the child to end, and kill it after `timeout_s`."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._release()

    def _wait_until_ready(self, stderr: IO[str]) -> str:
        # The last line is held back: if the process ends, it is the reason in the error.
        last = ""
        for line in stderr:
            if last:
                self._write_line(last)
            if line.startswith(self._ready_prefix):
                return line.removeprefix(self._ready_prefix).strip()
            last = line
        self.wait(STOP_S)
        raise ChildDidNotStart(last.strip())

    def _pass_on(self, stderr: IO[str]) -> None:
        for line in stderr:
            self._write_line(line)

    def _release(self) -> None:
        assert self._process is not None
        if self._passing_on is not None:
            self._passing_on.join()
        for stream in (self._process.stdin, self._process.stderr):
            if stream is not None:
                stream.close()


class EmbeddedBroker(ChildProcess):
    """`logbroker serve` as a child process; with port 0 the system chooses a port.

    Without `environment` it gets the `LOGBROKER_*` variables of this process.
    """

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        write_line: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        self.bootstrap_servers = ""
        listen = f"127.0.0.1:{port}"
        if environment is None:
            environment = inherited_environment(os.environ, "LOGBROKER_")
        super().__init__(
            [
                *("-m", "logbroker", "serve", "--listen", listen, "--data-dir", str(data_dir)),
                *options,
            ],
            "logbroker ready on ",
            environment,
            write_line,
        )

    def start(self) -> str:
        """Start the broker, wait until it serves, and return its address, `HOST:PORT`."""
        self.bootstrap_servers = super().start()
        return self.bootstrap_servers
