"""The health of ZooKeeper servers, by the command `srvr`, which needs no permission.

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
"""For all servers together, because a page waits for it."""

SERVERS_MAX: Final = 16
"""Each request needs a thread; an ensemble has three to seven servers."""

DEFAULT_PORT: Final = 2181

_ANSWER_BYTES_MAX: Final = 4_096
_PROBLEM_CHARS_MAX: Final = 200
_MODE: Final = re.compile(r"^Mode: (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ZooKeeperServer:
    """A server and its `mode`: `leader`, `follower`, `observer` or `standalone`.

    None if it does not serve; `problem` says why, and may quote the server.
    """

    address: str
    mode: str | None
    problem: str | None


class _Address(NamedTuple):
    host: str
    port: int


def zookeeper_health(addresses: str, timeout_s: float = TIMEOUT_S) -> tuple[ZooKeeperServer, ...]:
    """Return the current state of each server of `HOST:PORT,HOST:PORT/chroot`; never raises.

    Servers are queried in parallel; one that has not answered after `timeout_s` has a problem.
    Without an address the result is empty.
    """
    parts = (text.strip() for text in addresses.partition("/")[0].split(","))
    texts = list(dict.fromkeys(filter(None, parts)))[:SERVERS_MAX]
    answers: SimpleQueue[ZooKeeperServer] = SimpleQueue()
    end_s = time.monotonic() + timeout_s
    for text in texts:
        # Name resolution has no timeout of its own, so the thread itself is not waited for.
        threading.Thread(target=_query, args=(text, timeout_s, answers), daemon=True).start()
    silent = f"no answer within {timeout_s:g} s"
    states = {text: ZooKeeperServer(text, None, silent) for text in texts}
    with suppress(Empty):
        for _ in texts:
            server = answers.get(timeout=max(0.0, end_s - time.monotonic()))
            states[server.address] = server
    return tuple(states.values())


def _query(text: str, timeout_s: float, answers: "SimpleQueue[ZooKeeperServer]") -> None:
    answers.put(_server(text, timeout_s))


def _server(text: str, timeout_s: float) -> ZooKeeperServer:
    address = _parse_address(text)
    if address is None:
        return ZooKeeperServer(text, None, "invalid address: not HOST:PORT")
    try:
        answer = _send_srvr(address, timeout_s)
    except TimeoutError:
        return ZooKeeperServer(text, None, f"no answer within {timeout_s:g} s")
    except OSError as error:
        return ZooKeeperServer(text, None, error.strerror or str(error))
    except UnicodeError:
        return ZooKeeperServer(text, None, "invalid host name")
    mode = _MODE.search(answer)
    if mode is not None:
        return ZooKeeperServer(text, mode[1], None)
    return ZooKeeperServer(text, None, answer.strip()[:_PROBLEM_CHARS_MAX] or "empty answer")


def _send_srvr(address: _Address, timeout_s: float) -> str:
    """Return the server's answer; it closes the connection afterwards."""
    end_s = time.monotonic() + timeout_s
    answer = b""
    with socket.create_connection(address, timeout_s) as connection:
        connection.sendall(b"srvr")
        while len(answer) < _ANSWER_BYTES_MAX:
            connection.settimeout(max(0.01, end_s - time.monotonic()))
            part = connection.recv(_ANSWER_BYTES_MAX - len(answer))
            if not part:
                break
            answer += part
    return answer.decode(errors="replace")


def _parse_address(text: str) -> _Address | None:
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    host = host.removeprefix("[").removesuffix("]")
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) < 2**16
    return _Address(host, int(port)) if host and is_port else None
