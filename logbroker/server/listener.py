"""The listening socket and the connections that came through it."""

import errno
import logging
import socket
from collections.abc import Iterator
from typing import Final

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError
from logbroker.server.connection import Connection, Dispatcher
from logbroker.server.loop import READ, SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.workers import Workers

log = logging.getLogger("logbroker.listener")

BACKLOG: Final = 1024
ACCEPTS_PER_TURN: Final = 64
"""A storm of new connections gives way to the open ones after so many."""

ACCEPT_PAUSE_S: Final = 1.0

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class Listener:
    """Accepts connections up to the limit; iterating gives the open ones."""

    def __init__(self, config: BrokerConfig, loop: SocketLoop) -> None:
        """Bind at once, so that a taken address is known before anything else is done.

        Raises:
            ConfigurationError: the address cannot be bound.
        """
        self._config = config
        self._loop = loop
        self._connections: set[Connection] = set()
        self._sock = _bind(config.host, config.port)

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def port(self) -> int:
        """The port bound."""
        return int(self._sock.getsockname()[1])

    def start(self, dispatcher: Dispatcher, reads: Workers, counters: Counters) -> None:
        """Listen; `dispatcher` handles what the connections receive."""
        self._dispatcher = dispatcher
        self._reads = reads
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
                    continue  # the peer gave up before it was accepted
                log.error("cannot accept for %.0f s: %s", ACCEPT_PAUSE_S, error)
                self._pause()
                return
            try:
                self._open(sock, f"{address[0]}:{address[1]}")
            except OSError as error:
                log.warning("refused peer=%s reason=%s", address[0], error)
                sock.close()

    def _pause(self) -> None:
        """Let the backlog wait: while no descriptor is free, every turn would fail again."""
        self._loop.unregister(self._sock)
        resume_s = self._loop.now_s + ACCEPT_PAUSE_S
        self._loop.call_at(resume_s, lambda: self._loop.register(self._sock, READ, self._accept))

    def _open(self, sock: socket.socket, peer: str) -> None:
        if len(self._connections) >= self._config.connections_max:
            self._counters.connections_refused += 1
            log.warning(
                "refused peer=%s reason=%d connections are open, the limit",
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
                self._reads,
                self._dispatcher,
                self._counters,
                request_bytes_max=self._config.request_bytes_max,
                requests_in_flight_max=self._config.requests_in_flight_max,
                on_close=self._connections.discard,
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
