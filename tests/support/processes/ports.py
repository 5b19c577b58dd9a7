"""Free ports for servers that need a known port or restart on the same one."""

import fcntl
import itertools
import os
import random
import socket
import tempfile
from pathlib import Path
from typing import IO, Final

# Below the range that Linux takes ports for outgoing connections from, so that a server which is
# down for a while finds its port free when it comes back.
PORTS: Final = range(20_000, 32_000)

SHARES: Final = 24
"""The number of parts into which processes with tests divide the ports."""

_locks: Final[list[IO[bytes]]] = []
"""The lock of this process's share, which the kernel releases when the process ends."""


def _share() -> range:
    """Return this process's ports, which no other process with tests has, in this run or another.

    A port is free for a moment between its choice and its server, and while a server restarts.
    """
    folder = Path(tempfile.gettempdir()) / f"rewind-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    size = len(PORTS) // SHARES
    for start in PORTS[: SHARES * size : size]:
        lock = (folder / str(start)).open("wb")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        _locks.append(lock)
        return range(start, start + size)
    raise RuntimeError(f"{SHARES} processes with tests run already; see the locks in {folder}")


# In turn, so that what was chosen and is not bound yet is not chosen again soon; from anywhere, so
# that a client of the last run on these ports seldom meets a server of this one.
_ports = _share()
_turns = itertools.islice(itertools.cycle(_ports), random.randrange(len(_ports)), None)


def free_port() -> int:
    """Return a port without a listener."""
    return free_ports(1)[0]


def free_ports(count: int) -> list[int]:
    """Return different ports without a listener."""
    return list(itertools.islice(filter(_is_free, _turns), count))


def adjacent_ports(count: int) -> int:
    """Return the first of several consecutive ports without a listener."""
    return next(first for first in _turns if all(map(_is_free, range(first, first + count))))


def _is_free(port: int) -> bool:
    with socket.socket() as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
