"""Clients of the registry that are slow, large or many, over real sockets."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest
import uvicorn

from logbroker import bounded_http
from logbroker.bounded_http import HEAD_BYTES_MAX
from logbroker.schemas import service
from logbroker.schemas.domain.registry import SchemaRegistry
from logbroker.schemas.server import RegistryHttp
from logbroker.schemas.service import BODY_BYTES_MAX, RegistryService
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.schemas.memory_log import MemoryLog

POST = (
    b"POST /subjects/s/versions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    b"content-length: "
)


@pytest.fixture
def address() -> Iterator[tuple[str, int]]:
    log = MemoryLog()
    served = RegistryService(SchemaRegistry(log), log.catch_up)
    server = uvicorn.Server(
        uvicorn.Config(served, http=RegistryHttp, lifespan="off", log_config=None)
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        until(lambda: server.started, "it serves")
        yield listener.getsockname()
        server.should_exit = True
        thread.join()
    served.close()


def connected(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=DEADLINE_S)


def rest(connection: socket.socket) -> bytes:
    """What comes until the other side closes, however it does."""
    received = b""
    try:
        while piece := connection.recv(65_536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def is_served(address: tuple[str, int]) -> bool:
    host, port = address
    url = f"http://{host}:{port}/subjects"
    try:
        return bool(httpx.get(url, timeout=DEADLINE_S, verify=False).json() == [])
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("sent", [b"", b"GET /subjects HTTP/1.1\r\nhost", b"\r\n"])
def test_who_sends_no_whole_head_is_left(
    address: tuple[str, int], sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(bounded_http, "HEAD_S", 0.2)
        with connected(address) as connection:
            with suppress(ConnectionError):
                connection.sendall(sent)
            assert rest(connection) == b""
    assert is_served(address)


def test_who_asks_nothing_more_is_left(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    request = b"GET /subjects HTTP/1.1\r\nhost: x\r\n\r\n"
    received = b""
    with connected(address) as connection:
        connection.sendall(request)
        while not received.endswith(b"\r\n\r\n[]"):
            received += connection.recv(65_536)
        # The second request comes in time, and nothing after it.
        monkeypatch.setattr(bounded_http, "HEAD_S", 0.2)
        connection.sendall(request)
        assert rest(connection).endswith(b"\r\n\r\n[]")


def test_a_head_without_an_end_is_refused(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its size alone ends it: a time-out would come too late for this test.
    monkeypatch.setattr(bounded_http, "HEAD_S", 3_600.0)
    with connected(address) as connection:
        with suppress(ConnectionError):
            connection.sendall(b"GET / HTTP/1.1\r\nx: ")
            for _ in range(64):
                connection.sendall(b"y" * HEAD_BYTES_MAX)
        # Unread request bytes may reset the connection before the response is read.
        assert rest(connection)[:13] in (b"HTTP/1.1 400 ", b"")
    assert is_served(address)


def test_a_body_that_does_not_come_is_given_up(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "BODY_S", 0.2)
    with connected(address) as connection:
        connection.sendall(POST + b'100\r\n\r\n{"schema"')
        assert rest(connection).startswith(b"HTTP/1.1 408 ")
    assert is_served(address)


def test_a_body_that_is_too_large_is_refused_before_it_comes(address: tuple[str, int]) -> None:
    for size in (BODY_BYTES_MAX + 1, 10**30):
        with connected(address) as connection:
            connection.sendall(POST + str(size).encode() + b"\r\n\r\n")
            assert rest(connection)[9:12] in (b"413", b"400")
    assert is_served(address)


def test_a_client_that_leaves_amid_its_body_changes_nothing(address: tuple[str, int]) -> None:
    with connected(address) as connection:
        connection.sendall(POST + b'100\r\n\r\n{"schema"')
    assert is_served(address)


def test_a_connection_above_the_limit_replaces_the_one_that_waited_longest(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegistryHttp, "connections_max", 2)
    with connected(address) as first, connected(address):
        assert is_served(address)
        assert rest(first) == b""
