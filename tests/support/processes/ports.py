"""Free ports for servers that need a known port or restart on the same one."""

import itertools
import os
import random
import socket
from typing import Final

# Below the range that Linux takes ports for outgoing connections from, so that a server which is
# down for a while finds its port free when it comes back.
PORTS: Final = range(20_000, 32_000)

SHARES: Final = 12
"""The number of parts into which the test workers divide the ports."""


def _share() -> range:
    """Return this worker's ports, or all ports in a run without workers."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None:
        return PORTS
    size = len(PORTS) // SHARES
    # A worker that replaces a crashed one has a new number, so numbers may be large.
    start = PORTS.start + int(worker.removeprefix("gw")) % SHARES * size
    return range(start, start + size)


# In turn, so that what was chosen and is not bound yet is not chosen again soon; from anywhere,
# so that two runs on one machine seldom meet.
_turns = itertools.islice(itertools.cycle(_share()), random.randrange(len(_share())), None)


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
