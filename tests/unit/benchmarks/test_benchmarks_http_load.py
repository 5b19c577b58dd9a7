"""HTTP load generator: it reads complete responses and checks their status."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from benchmarks.http_load import encode, send_all, send_repeatedly

RESPONSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\nContent-Length: 5\r\n\r\nhello"


@contextmanager
def server(pieces: list[bytes]) -> Iterator[str]:
    """Run a server that responds to every request with these pieces, sent one by one."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while connection.recv(65_536):
                for piece in pieces:
                    connection.sendall(piece)

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


@pytest.mark.parametrize("cut", range(1, len(RESPONSE)))
def test_a_response_is_read_completely_wherever_it_is_cut(cut: int) -> None:
    with server([RESPONSE[:cut], RESPONSE[cut:]]) as url:
        load = send_repeatedly(url, encode("GET", "/", status=200), 1, 0.005)
    assert load.responses >= 1
    assert load.per_s == load.responses / load.seconds


def test_another_status_ends_the_measurement() -> None:
    with server([RESPONSE]) as url, pytest.raises(AssertionError, match="200 OK"):
        send_repeatedly(url, encode("GET", "/", status=202), 2, 0.05)


def test_a_request_has_its_key_and_its_body() -> None:
    request = encode("POST", "/events", key="rwk_1", body=b"{}", media_type="a/b", status=202)
    assert request.frame == (
        b"POST /events HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer rwk_1\r\n"
        b"content-type: a/b\r\ncontent-length: 2\r\n\r\n{}"
    )
    assert encode("GET", "/x", status=200).frame == b"GET /x HTTP/1.1\r\nhost: bench\r\n\r\n"


def test_each_request_is_sent_once_and_not_before_it_is_due() -> None:
    requests = [encode("GET", f"/{number}", status=200) for number in range(7)]
    with server([RESPONSE]) as url:
        start_s = time.monotonic()
        sent_s = send_all(url, requests, 3, rate=100.0)
    assert all(at_s >= start_s + number / 100 for number, at_s in enumerate(sent_s))


def test_a_request_with_another_status_ends_the_sending() -> None:
    requests = [encode("GET", "/", status=202)]
    with server([RESPONSE]) as url, pytest.raises(AssertionError, match="200 OK"):
        send_all(url, requests, 2)
