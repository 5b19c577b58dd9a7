"""Connections to brokers: requests are sent, and responses received in the same order."""

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
from logbroker.client.raw.sasl import authenticate
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
    """A blocking, authenticated connection; the caller closes it after an error.

    Every method raises ConnectionFailed if the connection fails or receives malformed data. No wait
    is longer than `wait_s` seconds without a byte.

    Raises:
        NotAuthorized: the broker rejects the user, or its certificate is not trusted.
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
        self._outstanding: deque[int] = deque()
        self._socket = _connect(address, context, min(settings.setup_timeout_s, wait_s))
        try:
            self._socket.settimeout(wait_s)
            self._versions = self._fetch_versions()
            if settings.credentials is not None:
                authenticate(self.request, settings.credentials, str(address))
        except BaseException:
            self.close()
            raise

    @property
    def is_idle(self) -> bool:
        """Whether no response is outstanding."""
        return not self._outstanding

    def close(self) -> None:
        """Close the connection, and drop outstanding responses."""
        self._socket.close()

    def request(self, message: Any) -> Any:
        """Send a kafka-python request on an idle connection, and return its response."""
        assert self.is_idle, "a response is outstanding"
        request_type = type(message)
        version = self._version(
            request_type.API_KEY, request_type.name, SENT_VERSIONS[request_type]
        )
        return self._request(message, version)

    def fileno(self) -> int:
        """Return the file descriptor of the socket, for a selector."""
        return self._socket.fileno()

    def send_fetch(self, *calls: FetchParameters, highest: int) -> int:
        """Send a Fetch of at most version `highest` without waiting; return its version.

        `calls` are of one topic; see `encode_fetch_request`.
        """
        lowest, spoken = fetch_client.SENT_VERSIONS
        version = self._version(ApiKey.FETCH, "FetchRequest", (lowest, min(highest, spoken)))
        self._send(encode_fetch_request(version, self._next_number(), self._client_id, *calls))
        return version

    def receive_fetch(self, version: int) -> FetchResponse:
        """Return the response to the oldest Fetch, which was sent in this version."""
        frame = self._receive()
        try:
            return decode_fetch_response(version, frame)
        except MalformedRequest as error:
            raise self._malformed_response(error) from error

    def _fetch_versions(self) -> dict[int, tuple[int, int]]:
        answer = self._request(ApiVersionsRequest(), SENT_VERSIONS[ApiVersionsRequest][1])
        if answer.error_code != NONE:
            raise ConnectionFailed(f"{self.address}: {name_of(answer.error_code)}")
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _version(self, api_key: int, name: str, spoken: tuple[int, int]) -> int:
        lowest, highest = self._versions.get(api_key, (0, -1))
        version = min(highest, spoken[1])
        if version < max(lowest, spoken[0]):
            raise BrokersUnavailable(
                f"{self.address} supports {name} versions {lowest} to {highest};"
                f" this client supports {spoken[0]} to {spoken[1]}"
            )
        return version

    def _request(self, message: Any, version: int) -> Any:
        self._send(encode_client_request(message, version, self._next_number(), self._client_id))
        frame = self._receive()
        try:
            return decode_client_response(type(message), version, frame)
        except MalformedRequest as error:
            raise self._malformed_response(error) from error

    def _next_number(self) -> int:
        number = next(self._numbers)
        self._outstanding.append(number)
        return number

    def _send(self, frame: bytes) -> None:
        try:
            self._socket.sendall(frame)
        except OSError as error:
            raise ConnectionFailed(f"{self.address}: {error}") from error

    def _receive(self) -> memoryview:
        """Return the next frame without its size prefix, in memory of its own."""
        (size,) = _SIZE.unpack(self._receive_exactly(_SIZE.size))
        if not _CORRELATION_ID.size <= size <= self._frame_bytes_max:
            raise ConnectionFailed(
                f"{self.address} announced a response of {size} bytes;"
                f" receive.message.max.bytes is {self._frame_bytes_max}"
            )
        frame = self._receive_exactly(size)
        (number,) = _CORRELATION_ID.unpack_from(frame)
        if number != self._outstanding.popleft():
            raise ConnectionFailed(f"{self.address} sent an unexpected correlation id")
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

    def _malformed_response(self, error: MalformedRequest) -> ConnectionFailed:
        return ConnectionFailed(f"{self.address} sent a malformed response: {error}")


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
        raise ConnectionFailed(f"{address}: TLS handshake failed: {error}") from error


class ConnectionPool:
    """Creates connections, reuses idle ones, and closes the rest at its end.

    No wait is longer than `wait_s` seconds without a byte.

    Raises:
        ConfigurationError: certificates or keys cannot be read.
    """

    def __init__(self, settings: RawSettings, wait_s: float) -> None:
        self._settings = settings
        self._context = None if settings.tls is None else make_context(settings.tls)
        self.wait_s = wait_s
        self._idle: list[BrokerConnection] = []
        self._taken: set[BrokerConnection] = set()

    def has_idle(self, address: BrokerAddress) -> bool:
        """Return whether the pool has an idle connection to a broker."""
        return any(each.address == address for each in self._idle)

    def acquire(self, address: BrokerAddress) -> BrokerConnection:
        """Return an idle connection to a broker, which the caller releases or discards.

        Raises:
            ConnectionFailed: no connection could be opened.
            NotAuthorized: the broker rejects the user, or is not trusted.
        """
        connection = next((each for each in self._idle if each.address == address), None)
        if connection is None:
            connection = BrokerConnection(address, self._settings, self._context, self.wait_s)
        else:
            self._idle.remove(connection)
        self._taken.add(connection)
        return connection

    def release(self, connection: BrokerConnection) -> None:
        """Return a connection to the pool; close it if a response is outstanding."""
        self._taken.discard(connection)
        if connection.is_idle:
            self._idle.append(connection)
        else:
            connection.close()

    def discard(self, connection: BrokerConnection) -> None:
        """Close a connection, and idle ones to the same broker, which may be broken as well."""
        self._taken.discard(connection)
        connection.close()
        for each in [each for each in self._idle if each.address == connection.address]:
            self._idle.remove(each)
            each.close()

    def close(self) -> None:
        """Close all connections, including those in use."""
        for connection in (*self._idle, *self._taken):
            connection.close()
        self._idle.clear()
        self._taken.clear()
