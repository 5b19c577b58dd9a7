"""The listening socket and its open connections."""

import errno
import logging
import socket
from collections.abc import Iterator
from typing import Final

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError
from logbroker.server.connection import Connection, Dispatcher, RequestLimits
from logbroker.server.loop import READ, SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.worker_pool import WorkerPool

log = logging.getLogger("logbroker.listener")

BACKLOG: Final = 1024
ACCEPTS_PER_TURN: Final = 64
"""At most this many new connections per turn, so that open ones are served."""

ACCEPT_PAUSE_S: Final = 1.0

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class Listener:
    """Accepts connections up to the limit; iterates over the open ones."""

    def __init__(self, config: BrokerConfig, loop: SocketLoop) -> None:
        """Bind the address, so that a conflict is found before anything else is done.

        Raises:
            ConfigurationError: the address cannot be bound.
        """
        self._config = config
        self._limits = RequestLimits(config.request_bytes_max, config.requests_in_flight_max)
        self._loop = loop
        self._connections: set[Connection] = set()
        self._sock = _bind(config.host, config.port)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._sock.getsockname()[1])

    def start(self, dispatcher: Dispatcher, read_pool: WorkerPool, counters: Counters) -> None:
        """Listen; `dispatcher` handles the received requests."""
        self._dispatcher = dispatcher
        self._read_pool = read_pool
        self._counters = counters
        self._sock.listen(BACKLOG)
        self._loop.register(self._sock, READ, self._accept)

    def close(self) -> None:
        """Close the listening socket and every connection."""
        self._loop.unregister(self._sock)
        self._sock.close()
        for connection in list(self._connections):
            connection.close()

    def _accept(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    continue  # the client disconnected before the accept
                log.error("cannot accept for %.0f s: %s", ACCEPT_PAUSE_S, error)
                self._pause()
                return
            try:
                self._open(sock, f"{address[0]}:{address[1]}")
            except OSError as error:
                log.warning("rejected peer=%s reason=%s", address[0], error)
                sock.close()

    def _pause(self) -> None:
        """Pause accepting: while no descriptor is free, every accept would fail."""
        self._loop.unregister(self._sock)
        resume_s = self._loop.now_s + ACCEPT_PAUSE_S
        self._loop.call_at(resume_s, lambda: self._loop.register(self._sock, READ, self._accept))

    def _open(self, sock: socket.socket, peer: str) -> None:
        if len(self._connections) >= self._config.connections_max:
            self._counters.connections_rejected += 1
            log.warning(
                "rejected peer=%s reason=connection limit reached connections=%d",
                peer,
                len(self._connections),
            )
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._counters.connections_opened += 1
        self._connections.add(
            Connection(
                sock,
                peer,
                self._loop,
                self._read_pool,
                self._dispatcher,
                self._counters,
                self._limits,
                self._connections.discard,
            )
        )


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}") from error
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setblocking(False)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}") from error
    return sock
