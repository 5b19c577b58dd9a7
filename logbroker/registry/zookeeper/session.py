"""The session with ZooKeeper: connected or not, and every request with a deadline."""

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

CONNECT_S: Final = 5.0
"""How long a broker that starts waits for ZooKeeper, which may be starting, too."""

HANDSHAKE_S: Final = 3.0
"""How long a new connection may stay unanswered. A ZooKeeper that is starting accepts some that it
never answers, and kazoo would wait there for as long as a session lasts."""

REQUEST_S: Final = 10.0
"""How long a request waits, which is enough for an ensemble to elect another leader."""

CLOSE_S: Final = 3.0
"""How long to wait for ZooKeeper to hear of the end; without it, it ends the session itself."""

REQUEST_BYTES_MAX: Final = 900_000
"""ZooKeeper closes the connection above 1,048,575 (`jute.maxbuffer`), other sessions' as well."""

# Each request puts a byte into a socket that holds some 270 of them and then blocks.
IN_FLIGHT_MAX: Final = 100

RECONNECT: Final = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

_LOSSES: Final = (
    ConnectionLoss,
    SessionExpiredError,
    OperationTimeoutError,
    ConnectionClosedError,
)
"""The connection went away before the answer came."""

_ANSWERS: Final = (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError)
"""What ZooKeeper says of nodes; everything else means that it cannot be worked with at present."""

_log = logging.getLogger(__name__)

# It says at each attempt that it fails to connect; what matters of that is said below.
_kazoo_log = logging.getLogger(f"{__name__}.kazoo")
_kazoo_log.setLevel(logging.ERROR)

Request = Callable[[KazooClient], Any]
"""Hands a request to kazoo's queue and gives the future answer."""


Watch = Callable[[WatchedEvent], None]


def exists(path: str, watch: Watch | None = None) -> Request:
    """A request for a node's `ZnodeStat`, or None; the watch is set in both cases."""
    return lambda client: client.exists_async(path, watch)


def get(path: str, watch: Watch | None = None) -> Request:
    """A request for a node's content and its `ZnodeStat`; the watch is set if it is there."""
    return lambda client: client.get_async(path, watch)


def children(path: str, watch: Watch | None = None) -> Request:
    """A request for the names of a node's children; the watch is set if the node is there."""
    return lambda client: client.get_children_async(path, watch)


class RequestTooLarge(Exception):
    """A transaction has more bytes than ZooKeeper takes in one piece; nothing was sent."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """A moment of the monotonic clock by which something must have happened."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Self:
        """The moment so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def remaining_s(self) -> float:
        """Never below zero."""
        return max(0.0, self.at_s - time.monotonic())


class SessionState(NamedTuple):
    """`session_id` is None from the moment that ZooKeeper said the session is over.

    `connections` counts up with each connection: with a new one all watches are gone.
    """

    is_connected: bool
    session_id: int | None
    connections: int


class ZooKeeperSession:
    """One session after the other, as ZooKeeper grants them; requests from any thread."""

    def __init__(self, address: str, timeout_s: float) -> None:
        """Prepare; nothing is sent before `connect`.

        Raises:
            ConfigurationError: the address is not `HOST:PORT[,HOST:PORT...][/PATH]`.
        """
        self._address = address
        self._listeners: list[Callable[[], None]] = []
        self._state = SessionState(is_connected=False, session_id=None, connections=0)
        self._changed = Condition()
        self._outage: Deadline | None = None
        """While there is no connection any more: until when requests wait for another."""
        self._is_closing = False
        self.timeout_s = timeout_s
        self._client = self._make_client(address)
        self._client.add_listener(self._hear)
        self._learn_granted_timeout()
        self._hurry_handshakes()

    @property
    def state(self) -> SessionState:
        """What holds now; any thread may read it, and it never waits."""
        return self._state

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when the state has changed, on a thread that must not wait."""
        self._listeners.append(listener)

    def connect(self) -> None:
        """Connect, and make the path that the address names where it is missing.

        Raises:
            ConfigurationError: nobody answers at the address.
        """
        self._client.start_async()
        try:
            deadline = Deadline.after(CONNECT_S)
            self._wait_for_connection(deadline)
            if self._client.chroot and self.ask(lambda client: client.exists_async("/")) is None:
                self._make_chroot()
        except (RegistryUnavailable, KazooException, KazooTimeoutError) as error:
            self.close()
            raise ConfigurationError(
                f"zookeeper is {self._address!r}; it cannot be reached there: {error}"
            ) from None

    def close(self) -> None:
        """End the session and with it everything ephemeral."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        # With a peer that does not answer kazoo may wait for as long as a session takes to end.
        closing = Thread(target=self._close_client, name="zookeeper-close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)

    def ask(self, request: Request, deadline: Deadline | None = None) -> Any:
        """The answer to a request, which is made again when its connection is lost.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: as ZooKeeper answers.
            RegistryUnavailable: it did not answer in time.
        """
        deadline = deadline or Deadline.after(REQUEST_S)
        while True:
            self._wait_for_connection(deadline)
            with contextlib.suppress(*_LOSSES):
                return self._answer(request(self._client), deadline)

    def ask_once(self, request: Request, deadline: Deadline | None = None) -> Any:
        """The answer to a request, which is made once.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: as ZooKeeper answers.
            RegistryUnavailable: it did not answer in time, or the connection was lost: it may
                have been done or not.
        """
        deadline = deadline or Deadline.after(REQUEST_S)
        self._wait_for_connection(deadline)
        try:
            return self._answer(request(self._client), deadline)
        except _LOSSES as error:
            raise self._unavailable(error) from error

    def ask_all(self, requests: Iterable[Request], deadline: Deadline | None = None) -> list[Any]:
        """The answers to many requests, in their order; None for a node that is not there.

        Without a deadline it takes as long as ZooKeeper goes on answering.

        Raises:
            RegistryUnavailable: as for `ask_once`.
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
        """An empty transaction, for `commit`."""
        return self._client.transaction()

    def commit(
        self, transaction: TransactionRequest, deadline: Deadline | None = None
    ) -> list[Any]:
        """Do all that the transaction has, or nothing: the answers, one for each part.

        It is made again when its connection is lost, though it may have been done.

        Raises:
            NoNodeError, NodeExistsError, BadVersionError, NotEmptyError: a part could not be
                done, the first of them.
            RequestTooLarge: it does not fit one request.
            RegistryUnavailable: ZooKeeper did not answer in time.
        """
        return self._first_refusal_raised(self.ask(_commitment(transaction), deadline))

    def commit_once(
        self, transaction: TransactionRequest, deadline: Deadline | None = None
    ) -> list[Any]:
        """Do all that the transaction has, or nothing, as `commit` does, but ask once.

        Raises:
            RegistryUnavailable: as for `ask_once`; the others as for `commit`.
        """
        return self._first_refusal_raised(self.ask_once(_commitment(transaction), deadline))

    def _make_client(self, address: str) -> KazooClient:
        try:
            return KazooClient(
                address, timeout=self.timeout_s, connection_retry=RECONNECT, logger=_kazoo_log
            )
        except ValueError as error:
            raise ConfigurationError(
                f"zookeeper is {address!r}; allowed is HOST:PORT[,HOST:PORT...][/PATH]: {error}"
            ) from None

    def _make_chroot(self) -> None:
        hosts, _, path = self._address.partition("/")
        # A client of its own: one with a chroot cannot make the nodes above that.
        client = KazooClient(hosts, timeout=self.timeout_s, logger=_kazoo_log)
        client.start(CONNECT_S)
        try:
            client.ensure_path(f"/{path}")
        finally:
            client.stop()
            client.close()

    def _learn_granted_timeout(self) -> None:
        """Have `timeout_s` say what ZooKeeper granted, which may differ from what was asked for."""
        connection = self._client._connection  # noqa: SLF001  # kazoo tells it nowhere else
        connect = connection._connect  # noqa: SLF001

        def connect_and_note(*arguments: Any) -> tuple[float, float]:
            read_timeout_ms, connect_timeout_ms = connect(*arguments)
            # kazoo takes two thirds of it for the longest silence.
            self.timeout_s = read_timeout_ms * 3 / 2 / 1000
            return read_timeout_ms, connect_timeout_ms

        connection._connect = connect_and_note  # noqa: SLF001

    def _hurry_handshakes(self) -> None:
        """Give up a connection that is not answered within `HANDSHAKE_S`; another one is made."""
        connection = self._client._connection  # noqa: SLF001  # kazoo has no setting for it
        invoke = connection._invoke  # noqa: SLF001

        def invoke_sooner(timeout_s: float, *arguments: Any, **options: Any) -> Any:
            return invoke(min(timeout_s, HANDSHAKE_S), *arguments, **options)

        connection._invoke = invoke_sooner  # noqa: SLF001

    def _hear(self, state: str) -> None:
        """Take a change of kazoo's state, on its connection's thread."""
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
            _log.warning("no connection to zookeeper=%s", self._address)
        else:
            self._state = before._replace(is_connected=False, session_id=None)
            if not self._is_closing:
                _log.warning("the session with zookeeper=%s is over", self._address)
        with self._changed:
            self._changed.notify_all()
        for listener in self._listeners:
            listener()

    def revive(self) -> None:
        """Connect anew where kazoo gave up, as it does when a peer answers with nonsense."""
        if self._client.client_state == KeeperState.CLOSED and not self._is_closing:
            _log.error("connecting to zookeeper=%s anew", self._address)
            self._client.start_async()

    def _wait_for_connection(self, deadline: Deadline) -> None:
        # Without one kazoo would queue the request, and block once a few hundred wait.
        with self._changed:
            self._changed.wait_for(
                lambda: self._state.is_connected or self._is_closing, self._patience_s(deadline)
            )
        if self._is_closing or not self._state.is_connected:
            raise self._unavailable("no connection")

    def _patience_s(self, deadline: Deadline) -> float:
        # Requests stand in line before threads: if each of them waited, the last would for hours.
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

    def _first_refusal_raised(self, answers: Sequence[Any]) -> list[Any]:
        for answer in answers:
            # The first says only that a later part failed.
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
            _log.warning("zookeeper=%s was not left in good order", self._address, exc_info=True)


def _commitment(transaction: TransactionRequest) -> Request:
    request = Transaction(transaction.operations)
    size = len(request.serialize())
    if size > REQUEST_BYTES_MAX:
        raise RequestTooLarge(f"{size} bytes; allowed is {REQUEST_BYTES_MAX}")

    def commit(client: KazooClient) -> Any:
        # A transaction of kazoo's can be sent once; its parts can be sent again.
        again = client.transaction()
        again.operations = transaction.operations
        return again.commit_async()

    return commit
