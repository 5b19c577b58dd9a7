"""How the servers of a ZooKeeper are: each is asked `srvr`, the word that it takes from anybody.

Source: ZooKeeper Administrator's Guide, "The Four Letter Words".
"""

import re
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

TIMEOUT_S: Final = 1.0
"""For all servers together: whoever waits draws the head of a page."""

SERVERS_MAX: Final = 16
"""Of which each takes a thread for as long as it is asked; an ensemble has three to seven."""

DEFAULT_PORT: Final = 2181

_ANSWER_BYTES_MAX: Final = 4_096
_WORD_CHARS_MAX: Final = 200
_MODE: Final = re.compile(r"^Mode: (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ZooKeeperServer:
    """A server and its `mode`: `leader`, `follower`, `observer` or `standalone`.

    None where it does not serve; `problem` says why, and may hold words of the server's own.
    """

    address: str
    mode: str | None
    problem: str | None


class _Address(NamedTuple):
    host: str
    port: int


def zookeeper_health(addresses: str, timeout_s: float = TIMEOUT_S) -> tuple[ZooKeeperServer, ...]:
    """Each server of `HOST:PORT,HOST:PORT/chroot`, as it is now; never raises.

    Servers are asked side by side, and one that has not answered after `timeout_s` is one that does
    not; none is told of where no address is given.
    """
    parts = (text.strip() for text in addresses.partition("/")[0].split(","))
    texts = list(dict.fromkeys(filter(None, parts)))[:SERVERS_MAX]
    answers: SimpleQueue[ZooKeeperServer] = SimpleQueue()
    end_s = time.monotonic() + timeout_s
    for text in texts:
        # Looking a name up has no timeout of its own, so nobody waits for the thread itself.
        threading.Thread(target=_ask, args=(text, timeout_s, answers), daemon=True).start()
    silent = f"no answer within {timeout_s:g} s"
    told = {text: ZooKeeperServer(text, None, silent) for text in texts}
    with suppress(Empty):
        for _ in texts:
            server = answers.get(timeout=max(0.0, end_s - time.monotonic()))
            told[server.address] = server
    return tuple(told.values())


def _ask(text: str, timeout_s: float, answers: "SimpleQueue[ZooKeeperServer]") -> None:
    answers.put(_server(text, timeout_s))


def _server(text: str, timeout_s: float) -> ZooKeeperServer:
    address = _read(text)
    if address is None:
        return ZooKeeperServer(text, None, "it is no HOST:PORT")
    try:
        said = _srvr(address, timeout_s)
    except TimeoutError:
        return ZooKeeperServer(text, None, f"no answer within {timeout_s:g} s")
    except OSError as error:
        return ZooKeeperServer(text, None, error.strerror or str(error))
    except UnicodeError:
        return ZooKeeperServer(text, None, "its host can be no name")
    mode = _MODE.search(said)
    if mode is not None:
        return ZooKeeperServer(text, mode[1], None)
    return ZooKeeperServer(text, None, said.strip()[:_WORD_CHARS_MAX] or "it says nothing")


def _srvr(address: _Address, timeout_s: float) -> str:
    """What the server says; it closes the connection behind it."""
    end_s = time.monotonic() + timeout_s
    said = b""
    with socket.create_connection(address, timeout_s) as connection:
        connection.sendall(b"srvr")
        while len(said) < _ANSWER_BYTES_MAX:
            connection.settimeout(max(0.01, end_s - time.monotonic()))
            part = connection.recv(_ANSWER_BYTES_MAX - len(said))
            if not part:
                break
            said += part
    return said.decode(errors="replace")


def _read(text: str) -> _Address | None:
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 2**16
    return _Address(host, int(port)) if host and is_port else None
