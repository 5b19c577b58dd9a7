"""An HTTP load generator with little CPU cost: encoded requests on persistent connections."""

import math
import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final, NamedTuple
from urllib.parse import urlsplit

_READ_BYTES: Final = 65_536
_HEAD_END: Final = b"\r\n\r\n"


class HttpRequest(NamedTuple):
    """One encoded request; every response must have this status."""

    frame: bytes
    status: int


class Load(NamedTuple):
    """The number of responses, and the time that they took."""

    responses: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Responses per second."""
        return self.responses / self.seconds


def encode(
    method: str,
    path: str,
    *,
    key: str = "",
    cookie: str = "",
    body: bytes = b"",
    media_type: str = "",
    status: int,
) -> HttpRequest:
    """Return a request, with a key or a cookie if given."""
    lines = [f"{method} {path} HTTP/1.1", "host: bench"]
    if key:
        lines.append(f"authorization: Bearer {key}")
    if cookie:
        lines.append(f"cookie: {cookie}")
    if body:
        lines += [f"content-type: {media_type}", f"content-length: {len(body)}"]
    return HttpRequest("\r\n".join([*lines, "", ""]).encode() + body, status)


def send_repeatedly(url: str, request: HttpRequest, connections: int, seconds: float) -> Load:
    """Send the same request repeatedly, one at a time on each connection."""
    deadline_s = time.perf_counter() + seconds
    start_s = time.perf_counter()
    with ThreadPoolExecutor(connections) as threads:
        tasks = [threads.submit(_send_until, url, request, deadline_s) for _ in range(connections)]
        responses = sum(task.result() for task in tasks)
    return Load(responses, time.perf_counter() - start_s)


def send_all(
    url: str, requests: Sequence[HttpRequest], connections: int, rate: float = math.inf
) -> list[float]:
    """Send each request once, at most `rate` per second, one at a time on each connection.

    Returns when each was sent, in seconds of the monotonic clock. A request that has no free
    connection when it is due is sent later.
    """
    start_s = time.monotonic()
    numbers = iter(range(len(requests)))
    sent_s = [0.0] * len(requests)

    def send_next(_: int) -> None:
        with closing(_connect(url)) as connection:
            # `next` of one iterator gives each number to one thread.
            for number in numbers:
                time.sleep(max(0.0, start_s + number / rate - time.monotonic()))
                sent_s[number] = time.monotonic()
                _exchange(connection, requests[number])

    with ThreadPoolExecutor(connections) as threads:
        list(threads.map(send_next, range(connections)))
    return sent_s


def _connect(url: str) -> socket.socket:
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    connection = socket.create_connection((place.hostname, place.port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _exchange(connection: socket.socket, request: HttpRequest) -> None:
    connection.sendall(request.frame)
    response = _read_response(connection)
    assert response.startswith(f"HTTP/1.1 {request.status} ".encode()), response


def _send_until(url: str, request: HttpRequest, deadline_s: float) -> int:
    responses = 0
    with closing(_connect(url)) as connection:
        # At least once, even if the thread starts late.
        while not responses or time.perf_counter() < deadline_s:
            _exchange(connection, request)
            responses += 1
    return responses


def _read_response(connection: socket.socket) -> bytes:
    """Read one complete response, whose header gives the size of its body."""
    response = connection.recv(_READ_BYTES)
    while _HEAD_END not in response:
        response += _receive(connection)
    head, _, body = response.partition(_HEAD_END)
    left = _body_bytes(head.lower().split(b"\r\n")) - len(body)
    while left > 0:
        more = _receive(connection)
        response += more
        left -= len(more)
    return response


def _receive(connection: socket.socket) -> bytes:
    more = connection.recv(_READ_BYTES)
    assert more, "the connection ended within a response"
    return more


def _body_bytes(lines: Sequence[bytes]) -> int:
    name = b"content-length:"
    return next((int(line.removeprefix(name)) for line in lines if line.startswith(name)), 0)
