"""A broker in a process of its own, owned by the program that starts it."""

import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

STOP_S: Final = 30.0
"""How long a child may take to finish what it holds before it is killed."""


class ChildDidNotStart(Exception):
    """The process ended before it was ready; the message is the last line that it said."""


class ChildProcess:
    """A server started as a child that ends with its parent, even when that is killed.

    The child's standard input is a pipe from here, which the kernel closes with this process;
    `--stop-on-stdin-close` makes the child stop cleanly then. Each line that it writes to
    standard error, but the one that says it is ready, goes to `hear`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        ready_prefix: str,
        environment: Mapping[str, str] | None = None,
        hear: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        """Describe `python ARGUMENTS`; its ready line begins with `ready_prefix`."""
        self._arguments = arguments
        self._ready_prefix = ready_prefix
        self._environment = environment
        self._hear = hear
        self._process: subprocess.Popen[str] | None = None
        self._passing_on: threading.Thread | None = None

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """How the child ended; none while it runs, or before it has started."""
        return None if self._process is None else self._process.poll()

    def start(self) -> str:
        """Start the child and wait until it is ready; the rest of its ready line.

        Raises:
            ChildDidNotStart: it ended first, for the reason in the message.
        """
        self._process = subprocess.Popen(
            [sys.executable, *self._arguments, "--stop-on-stdin-close"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._environment,
            # Ctrl-C in a terminal goes to the parent alone, which stops its children in order.
            start_new_session=True,
        )
        assert self._process.stderr is not None
        rest = self._wait_until_ready(self._process.stderr)
        self._passing_on = threading.Thread(target=self._pass_on, args=(self._process.stderr,))
        self._passing_on.start()
        return rest

    def stop(self) -> None:
        """Stop the child cleanly, or kill it after `STOP_S` seconds; twice does nothing more."""
        if self._process is None:
            return
        self._process.terminate()
        self.wait(STOP_S)

    def kill(self) -> None:
        """End the child at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self.wait(STOP_S)

    def wait(self, timeout_s: float) -> None:
        """Wait for the child's end, and kill it when `timeout_s` is over."""
        assert self._process is not None
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._release()

    def _wait_until_ready(self, stderr: IO[str]) -> str:
        # The last line waits: should the process end, it is the reason, and the error tells it.
        last = ""
        for line in stderr:
            if last:
                self._hear(last)
            if line.startswith(self._ready_prefix):
                return line.removeprefix(self._ready_prefix).strip()
            last = line
        self.wait(STOP_S)
        raise ChildDidNotStart(last.strip())

    def _pass_on(self, stderr: IO[str]) -> None:
        for line in stderr:
            self._hear(line)

    def _release(self) -> None:
        assert self._process is not None
        if self._passing_on is not None:
            self._passing_on.join()
        for stream in (self._process.stdin, self._process.stderr):
            if stream is not None:
                stream.close()


class EmbeddedBroker(ChildProcess):
    """`logbroker serve` as a child; port 0 lets the system choose one."""

    def __init__(
        self,
        data_dir: Path,
        port: int = 0,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        hear: Callable[[str], object] = sys.stderr.write,
    ) -> None:
        self.bootstrap_servers = ""
        listen = f"127.0.0.1:{port}"
        super().__init__(
            [
                *("-m", "logbroker", "serve", "--listen", listen, "--data-dir", str(data_dir)),
                *options,
            ],
            "logbroker ready on ",
            environment,
            hear,
        )

    def start(self) -> str:
        """Start the broker and wait until it serves; its address, `HOST:PORT`."""
        self.bootstrap_servers = super().start()
        return self.bootstrap_servers
