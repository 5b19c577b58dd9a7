"""Connections to brokers: requests go out, and responses come back in their order."""

import itertools
import socket
import ssl
import struct
from collections import deque
from typing import Any, Final

from kafka.protocol.metadata import ApiVersionsRequest

from logbroker.client.errors import BrokersUnavailable, NotAuthorized
from logbroker.client.raw.parsing.errors import ConnectionFailed
from logbroker.client.raw.parsing.metadata import BrokerAddress
from logbroker.client.raw.sasl import log_in
from logbroker.client.raw.settings import RawSettings
from logbroker.client.raw.tls import make_context
from logbroker.errors import MalformedRequest
from logbroker.wire import fetch_client
from logbroker.wire.apis import ApiKey
from logbroker.wire.client_messages import (
    SENT_VERSIONS,
    decode_client_response,
    encode_client_request,
)
from logbroker.wire.error_codes import NONE, name_of
from logbroker.wire.fetch_client import (
    FetchParameters,
    FetchResponse,
    decode_fetch_response,
    encode_fetch_request,
)

_SIZE: Final = struct.Struct(">i")
_CORRELATION_ID: Final = struct.Struct(">i")


class BrokerConnection:
    """A blocking connection, logged in; it is closed by whoever meets an error on it.

    Every method raises ConnectionFailed where the connection, or what came over it, is no good.
    No wait is longer than `wait_s` seconds without a byte.

    Raises:
        NotAuthorized: the broker does not let the user in, or its certificate is not trusted.
    """

    def __init__(
        self,
        address: BrokerAddress,
        settings: RawSettings,
        context: ssl.SSLContext | None,
        wait_s: float,
    ) -> None:
        self.address = address
        self._client_id = settings.client_id
        self._frame_bytes_max = settings.answer_bytes_max
        self._numbers = itertools.count(1)
        self._owed: deque[int] = deque()
        self._socket = _connect(address, context, min(settings.setup_timeout_s, wait_s))
        try:
            self._socket.settimeout(wait_s)
            self._versions = self._ask_versions()
            if settings.login is not None:
                log_in(self.ask, settings.login, str(address))
        except BaseException:
            self.close()
            raise

    @property
    def is_idle(self) -> bool:
        """Whether no answer is owed, so that somebody else may ask."""
        return not self._owed

    def close(self) -> None:
        """Give the connection up, with all answers that are still owed."""
        self._socket.close()

    def ask(self, message: Any) -> Any:
        """Send one of kafka-python's requests, and wait for its answer; nothing else is owed."""
        assert self.is_idle, "its answer would come behind another"
        request = type(message)
        version = self._version(request.API_KEY, request.name, SENT_VERSIONS[request])
        return self._ask(message, version)

    def send_fetch(self, call: FetchParameters, highest: int) -> int:
        """Send a Fetch and do not wait: its version, which is `highest` at most."""
        lowest, spoken = fetch_client.SENT_VERSIONS
        version = self._version(ApiKey.FETCH, "FetchRequest", (lowest, min(highest, spoken)))
        self._send(encode_fetch_request(version, self._next_number(), self._client_id, call))
        return version

    def receive_fetch(self, version: int) -> FetchResponse:
        """The answer to the oldest Fetch, which was sent in this version."""
        frame = self._receive()
        try:
            return decode_fetch_response(version, frame)
        except MalformedRequest as error:
            raise self._senseless(error) from error

    def _ask_versions(self) -> dict[int, tuple[int, int]]:
        answer = self._ask(ApiVersionsRequest(), SENT_VERSIONS[ApiVersionsRequest][1])
        if answer.error_code != NONE:
            raise ConnectionFailed(f"{self.address}: {name_of(answer.error_code)}")
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _version(self, api_key: int, name: str, spoken: tuple[int, int]) -> int:
        lowest, highest = self._versions.get(api_key, (0, -1))
        version = min(highest, spoken[1])
        if version < max(lowest, spoken[0]):
            raise BrokersUnavailable(
                f"{self.address} takes {name} in versions {lowest} to {highest},"
                f" and here are {spoken[0]} to {spoken[1]}"
            )
        return version

    def _ask(self, message: Any, version: int) -> Any:
        self._send(encode_client_request(message, version, self._next_number(), self._client_id))
        frame = self._receive()
        try:
            return decode_client_response(type(message), version, frame)
        except MalformedRequest as error:
            raise self._senseless(error) from error

    def _next_number(self) -> int:
        number = next(self._numbers)
        self._owed.append(number)
        return number

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise ConnectionFailed(f"{self.address}: {error}") from error

    def _receive(self) -> memoryview:
        """The next frame without its size prefix, in memory of its own."""
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        if not _CORRELATION_ID.size <= size <= self._frame_bytes_max:
            raise ConnectionFailed(
                f"{self.address} announces an answer of {size} bytes;"
                f" receive.message.max.bytes is {self._frame_bytes_max}"
            )
        frame = self._receive_exactly(size)
        (number,) = _CORRELATION_ID.unpack_from(frame)
        if number != self._owed.popleft():
            raise ConnectionFailed(f"{self.address} answers what nobody asked")
        return frame

    def _receive_exactly(self, size: int) -> memoryview:
        buffer = memoryview(bytearray(size))
        left = buffer
        try:
            while left:
                count = self._socket.recv_into(left)
                if not count:
                    raise ConnectionFailed(f"{self.address} closed the connection")
                left = left[count:]
        except OSError as error:
            raise ConnectionFailed(f"{self.address}: {error}") from error
        return buffer

    def _senseless(self, error: MalformedRequest) -> ConnectionFailed:
        return ConnectionFailed(f"{self.address} sent what is no answer: {error}")


def _connect(
    address: BrokerAddress, context: ssl.SSLContext | None, timeout_s: float
) -> socket.socket:
    try:
        connected = socket.create_connection(address, timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        raise ConnectionFailed(f"{address}: {error}") from error
    if context is None:
        return connected
    try:
        return context.wrap_socket(connected, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        raise NotAuthorized(
            f"the certificate of {address} is not trusted: {error.verify_message}"
        ) from error
    except OSError as error:
        raise ConnectionFailed(f"{address}: no TLS: {error}") from error


class ConnectionPool:
    """Makes connections as the settings say, and closes all that are left at its end.

    No wait on any of them is longer than `wait_s` seconds without a byte.

    Raises:
        ConfigurationError: certificates or keys cannot be read.
    """

    def __init__(self, settings: RawSettings, wait_s: float) -> None:
        self._settings = settings
        self._context = None if settings.tls is None else make_context(settings.tls)
        self.wait_s = wait_s
        self._idle: list[BrokerConnection] = []
        self._taken: set[BrokerConnection] = set()

    def has(self, address: BrokerAddress) -> bool:
        """Whether a broker is connected already, and nobody else uses the connection."""
        return any(each.address == address for each in self._idle)

    def take(self, address: BrokerAddress) -> BrokerConnection:
        """A connection to a broker, on which nothing is owed.

        It is the caller's, who gives it back or drops it.

        Raises:
            ConnectionFailed: none could be made.
            NotAuthorized: the broker does not let the user in, or is not trusted.
        """
        connection = next((each for each in self._idle if each.address == address), None)
        if connection is None:
            connection = BrokerConnection(address, self._settings, self._context, self.wait_s)
        else:
            self._idle.remove(connection)
        self._taken.add(connection)
        return connection

    def give_back(self, connection: BrokerConnection) -> None:
        """Leave a connection to the next one who needs it, unless an answer is owed on it."""
        self._taken.discard(connection)
        if connection.is_idle:
            self._idle.append(connection)
        else:
            connection.close()

    def drop(self, connection: BrokerConnection) -> None:
        """Close a connection, and those beside it: what ended it may have ended them."""
        self._taken.discard(connection)
        connection.close()
        for each in [each for each in self._idle if each.address == connection.address]:
            self._idle.remove(each)
            each.close()

    def close(self) -> None:
        """Close all, those that are in use, too."""
        for connection in (*self._idle, *self._taken):
            connection.close()
        self._idle.clear()
        self._taken.clear()
