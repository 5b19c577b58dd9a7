"""Requests to the HTTP API as bytes over kept connections: a client that costs next to none."""

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
    """One request, encoded; every answer must have this status."""

    frame: bytes
    status: int


class Load(NamedTuple):
    """What was answered in how long."""

    answers: int
    seconds: float

    @property
    def per_s(self) -> float:
        """Answers a second."""
        return self.answers / self.seconds


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
    """A request, with a key or a cookie if there is one."""
    lines = [f"{method} {path} HTTP/1.1", "host: bench"]
    if key:
        lines.append(f"authorization: Bearer {key}")
    if cookie:
        lines.append(f"cookie: {cookie}")
    if body:
        lines += [f"content-type: {media_type}", f"content-length: {len(body)}"]
    return HttpRequest("\r\n".join([*lines, "", ""]).encode() + body, status)


def ask_for(url: str, request: HttpRequest, connections: int, seconds: float) -> Load:
    """Ask the same again and again, on each connection when the answer before is there."""
    place = urlsplit(url)
    assert place.hostname is not None
    assert place.port is not None
    address = (place.hostname, place.port)
    deadline_s = time.perf_counter() + seconds
    start_s = time.perf_counter()
    with ThreadPoolExecutor(connections) as threads:
        tasks = [
            threads.submit(_ask_until, address, request, deadline_s) for _ in range(connections)
        ]
        answers = sum(task.result() for task in tasks)
    return Load(answers, time.perf_counter() - start_s)


def _ask_until(address: tuple[str, int], request: HttpRequest, deadline_s: float) -> int:
    wanted, answers = f"HTTP/1.1 {request.status} ".encode(), 0
    with closing(socket.create_connection(address)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Once at least, however late the thread began.
        while not answers or time.perf_counter() < deadline_s:
            connection.sendall(request.frame)
            answer = _read_answer(connection)
            assert answer.startswith(wanted), answer
            answers += 1
    return answers


def _read_answer(connection: socket.socket) -> bytes:
    """One whole answer, which says how long its body is."""
    answer = connection.recv(_READ_BYTES)
    while _HEAD_END not in answer:
        answer += _more(connection)
    head, _, body = answer.partition(_HEAD_END)
    left = _body_bytes(head.lower().split(b"\r\n")) - len(body)
    while left > 0:
        more = _more(connection)
        answer += more
        left -= len(more)
    return answer


def _more(connection: socket.socket) -> bytes:
    more = connection.recv(_READ_BYTES)
    assert more, "the connection ended within an answer"
    return more


def _body_bytes(lines: Sequence[bytes]) -> int:
    name = b"content-length:"
    return next((int(line.removeprefix(name)) for line in lines if line.startswith(name)), 0)
