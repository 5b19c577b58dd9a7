"""The ZooKeeper session: its connection state, and requests with deadlines."""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Condition, Thread
from typing import Any, Final, NamedTuple, Self

from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    OperationTimeoutError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import Transaction
from kazoo.protocol.states import KazooState, KeeperState, WatchedEvent

from logbroker.errors import ConfigurationError, RegistryUnavailable
from logbroker.registry.zookeeper.client_settings import NO_SECURITY, ZooKeeperSecurity

CONNECT_S: Final = 18.0
"""How long a starting process waits for ZooKeeper: Kafka's `zookeeper.connection.timeout.ms`."""

HANDSHAKE_S: Final = 3.0
"""How long a new connection may stay unanswered.

A starting ZooKeeper accepts connections that it never answers. kazoo alone would wait for a whole
session timeout.
"""

REQUEST_S: Final = 10.0
"""How long a request waits: enough for an ensemble to elect another leader."""

CLOSE_S: Final = 3.0
"""How long closing waits for ZooKeeper; otherwise the session expires by itself."""

REQUEST_BYTES_MAX: Final = 900_000
"""ZooKeeper drops connections with larger requests (`jute.maxbuffer`, 1,048,575 by default)."""

# Each request puts a byte into a socket that holds some 270 of them and then blocks.
IN_FLIGHT_MAX: Final = 100

RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

_LOSSES: Final = (
    ConnectionLoss,
    SessionExpiredError,
    OperationTimeoutError,
    ConnectionClosedError,
)
"""The connection was lost before the response arrived."""

_ANSWERS: Final = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""ZooKeeper's errors about nodes; every other error means that it is unavailable."""

_log = logging.getLogger(__name__)

# kazoo logs every failed attempt to connect; the relevant events are logged below.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)

Request = Callable[[KazooClient], Any]
"""Submits a request to kazoo's queue and returns its future."""


Watch = Callable[[WatchedEvent], None]


def ensure_path(path: str) -> Request:
    """Return a request that creates a node and its parents where they are missing."""
    return lambda client: client.ensure_path_async(path)


def exists(path: str, watch: Watch | None = None) -> Request:
    """Return a request for a node's `ZnodeStat`, or None; the watch is set in both cases."""
    return lambda client: client.exists_async(path, watch)


def get(path: str, watch: Watch | None = None) -> Request:
    """Return a request for a node's content and `ZnodeStat`; a watch is set if the node exists."""
    return lambda client: client.get_async(path, watch)


def children(path: str, watch: Watch | None = None) -> Request:
    """Return a request for the names of a node's children; the watch is set if the node exists."""
    return lambda client: client.get_children_async(path, watch)


class RequestTooLarge(Exception):
    """A transaction exceeds ZooKeeper's request size; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A time on the monotonic clock by which something must have happened."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """Return the deadline that is `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        """The remaining seconds, at least 0."""
        return max(0.0, self.at_s - time.monotonic())


class SessionState(NamedTuple):
    """The state of the session.

    `session_id` is None once ZooKeeper has reported the session's end. `connections` counts the
    connections: a new one has none of the old one's watches.
    """

    is_connected: bool
    session_id: int | None
    connections: int


class ZooKeeperSession:
    """Keeps a session open, and opens a new one when it expires; thread-safe."""

    def __init__(
        self, address: str, timeout_s: float, security: ZooKeeperSecurity = NO_SECURITY
    ) -> None:
        """Prepare the client; nothing is sent before `connect`.

        Raises:
            ConfigurationError: the address is not `HOST:PORT[,HOST:PORT...][/PATH]`.
        """
        self._address = address
        self._security = security
        self._listeners: list[Callable[[], None]] = []
        self._state = SessionState(is_connected=False, session_id=None, connections=0)
        self._changed = Condition()
        self._outage: Deadline | None = None
        """Without a connection: until when requests wait for the next one."""
        self._is_closing = False
        self.timeout_s = timeout_s
        self._client = self._make_client(address)
        self._client.add_listener(self._handle_state_change)
        self._record_granted_timeout()
        self._limit_handshake_time()

    @property
    def state(self) -> SessionState:
        """The current state; thread-safe and non-blocking."""
        return self._state

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each change of the state, on a thread that must not block."""
        self._listeners.append(listener)

    def connect(self) -> None:
        """Connect, and create the path in the address if it is missing.

        Raises:
            ConfigurationError: no server answers at the address.
        """
        self._client.start_async()
        try:
            deadline = Deadline.after(CONNECT_S)
            self._wait_for_connection(deadline)
            if (
                self._client.chroot
                and self.request(lambda client: client.exists_async("/")) is None
            ):
                self._make_chroot()
        except (RegistryUnavailable, KazooException, KazooTimeoutError) as error:
            self.close()
            raise ConfigurationError(
                f"zookeeper is {self._address!r}; cannot connect: {error}"
            ) from None

    def close(self) -> None:
        """End the session, which removes its ephemeral nodes."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        # If the peer does not answer, kazoo may wait for a whole session timeout.
        closing = Thread(target=self._close_client, name="zookeeper-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def request(self, request: Request, deadline: Deadline | None = None) -> Any:
        """Return the response to a request; repeat it if its connection is lost.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: as ZooKeeper answers.
            RegistryUnavailable: ZooKeeper did not answer in time.
        """
        deadline = deadline or Deadline.after(REQUEST_S)
        while True:
            self._wait_for_connection(deadline)
            with contextlib.suppress(*_LOSSES):
                return self._answer(request(self._client), deadline)

    def request_once(self, request: Request, deadline: Deadline | None = None) -> Any:
        """Return the response to a request, which is sent once.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: as ZooKeeper answers.
            RegistryUnavailable: no answer came in time, or the connection was lost; the request may
                have been executed.
        """
        deadline = deadline or Deadline.after(REQUEST_S)
        self._wait_for_connection(deadline)
        try:
            return self._answer(request(self._client), deadline)
        except _LOSSES as error:
            raise self._unavailable(error) from error

    def request_all(
        self, requests: Iterable[Request], deadline: Deadline | None = None
    ) -> list[Any]:
        """Return the responses to many requests, in order; None for a missing node.

        Without a deadline it continues as long as ZooKeeper answers.

        Raises:
            RegistryUnavailable: as for `request_once`.
        """
        answers: list[Any] = []
        remaining = iter(requests)
        while window := list(islice(remaining, IN_FLIGHT_MAX)):
            until = deadline or Deadline.after(REQUEST_S)
            self._wait_for_connection(until)
            futures = [request(self._client) for request in window]
            try:
                answers += [self._answer_or_none(future, until) for future in futures]
            except _LOSSES as error:
                raise self._unavailable(error) from error
        return answers

    def transaction(self) -> TransactionRequest:
        """Return an empty transaction for `commit`."""
        return self._client.transaction()

    def commit(
        self, transaction: TransactionRequest, deadline: Deadline | None = None
    ) -> list[Any]:
        """Execute all parts of the transaction or none; return one response per part.

        It is repeated if its connection is lost, although it may have been executed.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: the first part that
                failed.
            RequestTooLarge: the transaction exceeds one request.
            RegistryUnavailable: ZooKeeper did not answer in time.
        """
        return self._raise_first_error(self.request(_commit_request(transaction), deadline))

    def commit_once(
        self, transaction: TransactionRequest, deadline: Deadline | None = None
    ) -> list[Any]:
        """Execute a transaction as `commit` does, but send it once.

        Raises:
            RegistryUnavailable: as for `request_once`; other errors as for `commit`.
        """
        return self._raise_first_error(self.request_once(_commit_request(transaction), deadline))

    def _make_client(self, address: str) -> KazooClient:
        try:
            return KazooClient(
                address,
                timeout=self.timeout_s,
                connection_retry=RECONNECT,
                logger=_kazoo_log,
                **self._security.client_options,
            )
        except ValueError as error:
            raise ConfigurationError(
                f"zookeeper is {address!r}; allowed is HOST:PORT[,HOST:PORT...][/PATH]: {error}"
            ) from None

    def _make_chroot(self) -> None:
        hosts, _, path = self._address.partition("/")
        # A separate client: one with a chroot cannot create the nodes above it.
        client = KazooClient(
            hosts, timeout=self.timeout_s, logger=_kazoo_log, **self._security.client_options
        )
        client.start(CONNECT_S)
        try:
            client.ensure_path(f"/{path}")
        finally:
            client.stop()
            client.close()

    def _record_granted_timeout(self) -> None:
        """Keep `timeout_s` at the granted timeout, which may differ from the request."""
        connection = self._client._connection  # noqa: SLF001  # kazoo has no public attribute for it
        connect = connection._connect  # noqa: SLF001

        def connect_and_record(*arguments: Any) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = connect(*arguments)
            # kazoo's read timeout is two thirds of the session timeout.
            self.timeout_s = read_timeout_ms * 3 / 2 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect_and_record  # noqa: SLF001

    def _limit_handshake_time(self) -> None:
        """Give up a connection that is not answered within `HANDSHAKE_S`, and try the next."""
        connection = self._client._connection  # noqa: SLF001  # kazoo has no setting for it
        invoke = connection._invoke  # noqa: SLF001

        def invoke_with_limit(timeout_s: float, *arguments: Any, **options: Any) -> Any:
            return invoke(min(timeout_s, HANDSHAKE_S), *arguments, **options)

        connection._invoke = invoke_with_limit  # noqa: SLF001

    def _handle_state_change(self, state: str) -> None:
        """Record a change of kazoo's state, on its connection thread."""
        before = self._state
        if before.is_connected:
            self._outage = Deadline.after(REQUEST_S)
        if state == KazooState.CONNECTED:
            self._outage = None
            session_id, _ = self._client.client_id
            self._state = SessionState(
                is_connected=True, session_id=session_id, connections=before.connections + 1
            )
            _log.info("connected to zookeeper=%s session=0x%x", self._address, session_id)
        elif state == KazooState.SUSPENDED:
            self._state = before._replace(is_connected=False)
            _log.warning("connection lost zookeeper=%s", self._address)
        else:
            self._state = before._replace(is_connected=False, session_id=None)
            if not self._is_closing:
                _log.warning("session expired zookeeper=%s", self._address)
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def reopen_if_closed(self) -> None:
        """Connect again after kazoo has given up, as it does when a peer sends malformed data."""
        if self._client.client_state == KeeperState.CLOSED and not self._is_closing:
            _log.error("reconnecting to zookeeper=%s", self._address)
            self._client.start_async()

    def _wait_for_connection(self, deadline: Deadline) -> None:
        # Without a connection kazoo queues requests, and blocks after a few hundred.
        with self._changed:
            self._changed.wait_for(
                lambda: self._state.is_connected or self._is_closing,
                self._connection_wait_s(deadline),
            )
        if self._is_closing or not self._state.is_connected:
            raise self._unavailable("no connection")

    def _connection_wait_s(self, deadline: Deadline) -> float:
        # Queued requests share one wait per outage; otherwise the last would wait for hours.
        outage = self._outage
        remaining_s = deadline.remaining_s
        return remaining_s if outage is None else min(remaining_s, outage.remaining_s)

    def _answer(self, future: Any, deadline: Deadline) -> Any:
        try:
            return future.get(timeout=deadline.remaining_s)
        except KazooTimeoutError:
            raise self._unavailable("no answer in time") from None
        except (*_ANSWERS, *_LOSSES):
            raise
        except KazooException as error:
            raise self._unavailable(error) from error

    def _answer_or_none(self, future: Any, deadline: Deadline) -> Any:
        try:
            return self._answer(future, deadline)
        except NoNodeError:
            return None

    def _raise_first_error(self, answers: Sequence[Any]) -> list[Any]:
        for answer in answers:
            # RolledBackError only says that a later part failed.
            if isinstance(answer, Exception) and not isinstance(answer, RolledBackError):
                raise answer if isinstance(answer, _ANSWERS) else self._unavailable(answer)
        return list(answers)

    def _unavailable(self, reason: object) -> RegistryUnavailable:
        text = repr(reason) if isinstance(reason, Exception) else reason
        return RegistryUnavailable(f"ZooKeeper at {self._address}: {text}")

    def _close_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception:
            _log.warning("closing the session failed zookeeper=%s", self._address, exc_info=True)


def _commit_request(transaction: TransactionRequest) -> Request:
    request = Transaction(transaction.operations)
    size = len(request.serialize())
    if size > REQUEST_BYTES_MAX:
        raise RequestTooLarge(f"{size} bytes; maximum {REQUEST_BYTES_MAX}")

    def commit(client: KazooClient) -> Any:
        # kazoo can send a transaction only once, but its parts can be copied.
        again = client.transaction()
        again.operations = transaction.operations
        return again.commit_async()

    return commit
