"""The listening sockets of a broker and their open connections."""

import errno
import logging
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError
from logbroker.listeners import ListenerAddress, ListenerConfig, SecurityProtocol
from logbroker.quotas.meters import QuotaMeters
from logbroker.security.tls import TlsContexts, TlsFiles
from logbroker.security.users import Users
from logbroker.server.connection import (
    Connection,
    ConnectionOrigin,
    Dispatcher,
    RequestLimits,
    host_of,
)
from logbroker.server.loop import READ, SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.request_memory import RequestMemory
from logbroker.server.sasl import SaslGate, SaslServer, SaslSettings
from logbroker.server.tls_connection import TlsConnection, TlsResources
from logbroker.server.worker_pool import WorkerPool

log = logging.getLogger("logbroker.listener")

BACKLOG: Final = 1024
ACCEPTS_PER_TURN: Final = 64
"""At most this many new connections per turn, so that open ones are served."""

ACCEPT_PAUSE_S: Final = 1.0

THROTTLED_MAX: Final = 1_000
"""Connections over a quota that wait for being closed; further ones are closed at once."""

AUTHENTICATION_THREADS: Final = 2
"""Threads for handshakes of TLS and for passwords."""

CERTIFICATE_CHECK_S: Final = 10.0
"""Interval between checks whether the certificate files were replaced."""

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)


class BoundListener(NamedTuple):
    """A listener and its bound socket."""

    config: ListenerConfig
    sock: socket.socket

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self.sock.getsockname()[1])

    @property
    def advertised(self) -> ListenerAddress:
        """The address at which clients reach this listener."""
        config = self.config
        return ListenerAddress(
            config.name,
            config.protocol,
            config.advertised_host or config.host,
            config.advertised_port or self.port,
        )


class Listener:
    """Accepts connections on every listener, up to the limit; iterates over the open ones."""

    def __init__(self, config: BrokerConfig, loop: SocketLoop) -> None:
        """Bind every address, so that a conflict is found before anything else is done.

        Raises:
            ConfigurationError: an address cannot be bound, or a certificate cannot be used.
        """
        self._contexts = _tls_contexts(config)
        self._config = config
        self.memory = RequestMemory(max(config.request_memory_bytes_max, config.request_bytes_max))
        self._limits = RequestLimits(
            config.request_bytes_max, config.requests_in_flight_max, self.memory
        )
        self._loop = loop
        self._connections: set[Connection] = set()
        self._by_host: Counter[str] = Counter()
        """The number of open connections by the address of the client."""
        self._throttled: set[socket.socket] = set()
        self._pool: WorkerPool | None = None
        self._tls: TlsResources | None = None
        self._sasl: SaslServer | None = None
        self._bound: list[BoundListener] = []
        try:
            for each in config.served_listeners:
                self._bound.append(BoundListener(each, _bind(each.host, each.port)))
        except ConfigurationError:
            for bound in self._bound:
                bound.sock.close()
            raise

    def __iter__(self) -> Iterator[Connection]:
        return iter(self._connections)

    def __len__(self) -> int:
        return len(self._connections)

    @property
    def addresses(self) -> list[ListenerAddress]:
        """The advertised address of every listener, in the order of the settings."""
        return [bound.advertised for bound in self._bound]

    @property
    def port(self) -> int:
        """The bound port of the first listener."""
        return self._bound[0].port

    def reload_certificates(self) -> None:
        """Use the current certificate files for new connections."""
        if self._contexts is not None:
            self._contexts.reload()

    def _check_certificates(self) -> None:
        if self._contexts is not None:
            self._contexts.reload_if_changed()

    def start(
        self,
        dispatcher: Dispatcher,
        read_pool: WorkerPool,
        counters: Counters,
        users: Callable[[], Users],
        meters: QuotaMeters,
    ) -> None:
        """Listen; `dispatcher` handles the received requests, `users` may authenticate."""
        self._meters = meters
        self._dispatcher = dispatcher
        self._read_pool = read_pool
        self._counters = counters
        protocols = [bound.config.protocol for bound in self._bound]
        if any(each.has_tls or each.has_sasl for each in protocols):
            self._pool = WorkerPool(self._loop, "authentication", AUTHENTICATION_THREADS)
            settings = SaslSettings(
                tuple(self._config.sasl_enabled_mechanisms),
                self._config.connections_max_reauth_ms,
                self._config.connection_failed_authentication_delay_ms,
                self._config.request_bytes_max,
            )
            self._sasl = SaslServer(settings, users, self._loop, self._pool, counters)
        if self._contexts is not None:
            assert self._pool is not None, "listeners with TLS have threads for handshakes"
            self._tls = TlsResources(self._contexts, self._pool)
            self._loop.call_every(CERTIFICATE_CHECK_S, self._check_certificates)
        for bound in self._bound:
            bound.sock.listen(BACKLOG)
            self._watch(bound)
            log.info(
                "listening listener=%s protocol=%s host=%s port=%d",
                bound.config.name,
                bound.config.protocol,
                bound.config.host,
                bound.port,
            )

    def close_stalled(self) -> None:
        """Close a connection that keeps request memory without need, if others wait for it."""
        self.memory.close_stalled(self._connections, self._loop.now_s)

    def close(self) -> None:
        """Close the listening sockets and every connection."""
        for bound in self._bound:
            self._loop.unregister(bound.sock)
            bound.sock.close()
        for connection in list(self._connections):
            connection.close()
        for sock in list(self._throttled):
            self._close_throttled(sock)
        if self._pool is not None:
            self._pool.close()

    def _watch(self, bound: BoundListener) -> None:
        self._loop.register(bound.sock, READ, lambda _events: self._accept(bound))

    def _accept(self, bound: BoundListener) -> None:
        for _ in range(ACCEPTS_PER_TURN):
            try:
                sock, address = bound.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    continue  # the client disconnected before the accept
                log.error("cannot accept for %.0f s: %s", ACCEPT_PAUSE_S, error)
                self._pause(bound)
                return
            origin = ConnectionOrigin(f"{address[0]}:{address[1]}", bound.config.name)
            throttle_s = self._meters.admit_connection(host_of(origin.peer), self._loop.now_s)
            if throttle_s > 0:
                self._throttle(sock, throttle_s)
                continue
            try:
                self._open(sock, origin, bound.config.protocol)
            except OSError as error:
                log.warning("rejected peer=%s reason=%s", address[0], error)
                sock.close()

    def _pause(self, bound: BoundListener) -> None:
        """Pause accepting: while no descriptor is free, every accept would fail."""
        self._loop.unregister(bound.sock)
        self._loop.call_at(self._loop.now_s + ACCEPT_PAUSE_S, lambda: self._watch(bound))

    def _open(
        self, sock: socket.socket, origin: ConnectionOrigin, protocol: SecurityProtocol
    ) -> None:
        config, of_host = self._config, self._by_host[host_of(origin.peer)]
        if len(self) >= config.connections_max or of_host >= config.connections_per_ip_max:
            self._counters.connections_rejected += 1
            log.warning(
                "rejected peer=%s reason=connection limit reached connections=%d of_this_ip=%d",
                origin.peer,
                len(self),
                of_host,
            )
            sock.close()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._counters.connections_opened += 1
        made = TlsConnection if protocol.has_tls else Connection
        connection = made(
            sock,
            origin,
            self._loop,
            self._read_pool,
            self._dispatcher,
            self._counters,
            self._limits,
            self._remove,
        )
        if isinstance(connection, TlsConnection):
            assert self._tls is not None, "listeners with TLS have contexts"
            connection.start_handshake(self._tls, self._tls.contexts.context(protocol))
        if protocol.has_sasl:
            assert self._sasl is not None, "listeners with SASL have a server for it"
            connection.gate = SaslGate(connection, self._sasl)
        self._connections.add(connection)
        self._by_host[connection.client_host] += 1

    def _remove(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._by_host[connection.client_host] -= 1
        if not self._by_host[connection.client_host]:
            del self._by_host[connection.client_host]

    def _throttle(self, sock: socket.socket, throttle_s: float) -> None:
        """Close a connection after a time, so that its client does not connect again at once."""
        if len(self._throttled) >= THROTTLED_MAX:
            sock.close()
            return
        self._throttled.add(sock)
        self._loop.call_at(self._loop.now_s + throttle_s, lambda: self._close_throttled(sock))

    def _close_throttled(self, sock: socket.socket) -> None:
        self._throttled.discard(sock)
        sock.close()


def _tls_contexts(config: BrokerConfig) -> TlsContexts | None:
    if not any(each.protocol.has_tls for each in config.served_listeners):
        return None
    assert config.ssl_certfile is not None, "the settings were validated"
    files = TlsFiles(
        config.ssl_certfile, config.ssl_keyfile or config.ssl_certfile, config.ssl_ca_file
    )
    return TlsContexts(files, config.ssl_client_auth)


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
