"""What the comparison needs of a broker, and how its process is started and measured."""

import os
import shutil
import signal
import socket
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import click
import psutil

from benchmarks.peers.exchange import Consumer, Producer
from benchmarks.running_broker import cpu_s, until

STOP_S: Final = 30.0
READY_S: Final = 120.0
CONNECT_S: Final = 30.0
LOG_BYTES_SHOWN: Final = 4_000
BLOCK_BYTES: Final = 512
"""The unit of `st_blocks`."""

_SYSTEM_PROGRAMS: Final = "/usr/sbin:/sbin"
"""Where Debian installs servers; an ordinary user's PATH lacks it."""


class PeerUnavailable(Exception):
    """A broker cannot be started on this machine; the message is the reason."""


class RunningPeer(ABC):
    """A running broker: its version, its logs, and its use of resources."""

    version: str

    def __init__(self, process: psutil.Process, data_dir: Path) -> None:
        self._process = process
        self._data_dir = data_dir

    @abstractmethod
    def create_log(self, name: str) -> None:
        """Create an empty topic, stream or queue."""

    @abstractmethod
    def producer(self, name: str, batch: int) -> Producer:
        """Connect a producer that sends `batch` messages in a request."""

    @abstractmethod
    def consumer(self, name: str, batch: int, messages: int) -> Consumer:
        """Connect a consumer of all `messages` messages, which were produced in such batches."""

    def cpu_s(self) -> float:
        """Return the CPU seconds of the broker and its child processes."""
        processes = [self._process, *self._process.children(recursive=True)]
        return sum(cpu_s(each) for each in processes)

    def disk_bytes(self) -> int:
        """Return the bytes that its files occupy on the disk, once all are written."""
        os.sync()
        blocks = 0
        for folder, _, names in os.walk(self._data_dir):
            for name in names:
                # A broker deletes files meanwhile.
                with suppress(FileNotFoundError):
                    blocks += Path(folder, name).lstat().st_blocks
        return blocks * BLOCK_BYTES


class Peer(NamedTuple):
    """A broker with its settings, as one line of the tables."""

    name: str
    title: str
    batches: tuple[int, ...]
    """The numbers of messages in one request that its protocol can send, of 1 and 50."""
    is_flushed: bool
    """Whether an acknowledged message is on the disk, and not only in the page cache."""
    settings: str
    run: Callable[[Path], AbstractContextManager[RunningPeer]]
    """Starts the broker with its data in a new folder, and yields it.

    Raises:
        PeerUnavailable: the broker is not installed, or cannot be downloaded.
    """


def find_program(name: str, package: str) -> str:
    """Return the path of a program of a Debian package.

    Raises:
        PeerUnavailable: it is not installed.
    """
    found = shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SYSTEM_PROGRAMS}")
    if found is None:
        raise PeerUnavailable(f"{name} is not installed; Debian's package {package} has it")
    return found


def first_line(command: Sequence[str]) -> str:
    """Return the first line that a command prints, which is usually a version."""
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=STOP_S)
    return (done.stdout or done.stderr).splitlines()[0]


def connect(port: int) -> socket.socket:
    """Return a connection to a port of this machine."""
    sock = socket.create_connection(("127.0.0.1", port), CONNECT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


@contextmanager
def server_process(
    command: Sequence[str],
    log: Path,
    ports: Sequence[int],
    environment: Mapping[str, str] | None = None,
) -> Iterator[psutil.Process]:
    """Run a server until the end of the block, and wait until it listens on all ports.

    It has its own process group, which is killed at the end.

    Raises:
        ClickException: the server does not start; the message has the end of its output.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
    try:
        until(
            lambda: process.poll() is not None or all(map(_is_open, ports)),
            f"{command[0]} is ready",
            deadline_s=READY_S,
        )
        if process.poll() is not None:
            reason = log.read_text(errors="replace")[-LOG_BYTES_SHOWN:]
            raise click.ClickException(f"{command[0]} did not start:\n{reason}")
        yield psutil.Process(process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(STOP_S)


def _is_open(port: int) -> bool:
    try:
        connect(port).close()
    except OSError:
        return False
    return True
