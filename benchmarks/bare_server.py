"""A server that does nothing but move bytes: the baseline of everything over a socket.

A client says once what it will send and what it wants back; then every so many bytes that come
are answered with so many bytes, from memory as a broker acknowledges, or by `sendfile` out of
the page cache as it serves a fetch. Nothing is looked at, checked or stored. It shares the
broker's shape, one thread and a selector, so a ratio says what the broker's own work costs.
"""

import multiprocessing
import os
import selectors
import socket
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Control
from typing import Final, NamedTuple

import psutil

ACKNOWLEDGE: Final = 0
SERVE_FILE: Final = 1
COUNT: Final = 2
"""Answer with the number of bytes received, once the client has ended its side."""

RECEIVE_BYTES: Final = 512 * 1024
FILE_BYTES: Final = 64 * 2**20

_TERMS: Final = struct.Struct(">iqq")
_SIZE: Final = struct.Struct(">i")
_TOTAL: Final = struct.Struct(">q")


class Terms(NamedTuple):
    """What a client and the server agree on: the kind, and bytes of a request and an answer.

    An answer out of a file has its size, an int32, in front, and counts it in `answer_bytes`.
    """

    kind: int
    request_bytes: int
    answer_bytes: int

    def encode(self) -> bytes:
        """The first bytes on a connection."""
        return _TERMS.pack(*self)


class BareServer(NamedTuple):
    """Where the other process listens, and itself."""

    address: tuple[str, int]
    process: psutil.Process


@contextmanager
def bare_server() -> Iterator[BareServer]:
    """The server in a process of its own, gone at the end."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    child = spawn.Process(target=_serve, args=(theirs,), daemon=True)
    child.start()
    theirs.close()
    try:
        yield BareServer(("127.0.0.1", ours.recv()), psutil.Process(child.pid))
    finally:
        ours.close()
        child.join()


def read_total(sock: socket.socket) -> int:
    """The bytes that a `COUNT` server received, after the client has ended its side."""
    return int(_TOTAL.unpack(sock.recv(_TOTAL.size, socket.MSG_WAITALL))[0])


class _Peer:
    """One connection: blocking sends, as its client never stops to read."""

    def __init__(self, sock: socket.socket, file: int) -> None:
        self._sock = sock
        self._file = file
        self._terms = Terms(*_TERMS.unpack(sock.recv(_TERMS.size, socket.MSG_WAITALL)))
        self._acknowledgement = bytes(self._terms.answer_bytes)
        self._unanswered_bytes = 0
        self._total_bytes = 0
        self._position = 0

    def receive(self, scratch: memoryview) -> bool:
        """Read once and answer; false at the client's end."""
        try:
            count = self._sock.recv_into(scratch)
            self._take(count)
        except ConnectionError:
            # The client had enough and left in the middle of an answer.
            count = 0
        if count == 0:
            self._sock.close()
        return count > 0

    def _take(self, count: int) -> None:
        self._total_bytes += count
        if self._terms.kind != COUNT:
            self._unanswered_bytes += count
            requests, self._unanswered_bytes = divmod(
                self._unanswered_bytes, self._terms.request_bytes
            )
            self._answer(requests)
        elif count == 0:
            self._sock.sendall(_TOTAL.pack(self._total_bytes))

    def _answer(self, requests: int) -> None:
        if self._terms.kind == ACKNOWLEDGE:
            self._sock.sendall(self._acknowledgement * requests)
            return
        for _ in range(requests):
            self._serve_file()

    def _serve_file(self) -> None:
        left = self._terms.answer_bytes - _SIZE.size
        if self._position + left > FILE_BYTES:
            self._position = 0
        self._sock.send(_SIZE.pack(left), socket.MSG_MORE)
        while left:
            sent = os.sendfile(self._sock.fileno(), self._file, self._position, left)
            self._position += sent
            left -= sent


def _serve(control: Control) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    scratch = memoryview(bytearray(RECEIVE_BYTES))
    with tempfile.TemporaryFile() as file, selectors.DefaultSelector() as selector:
        file.write(os.urandom(2**20) * (FILE_BYTES // 2**20))
        file.flush()
        control.send(listening.getsockname()[1])
        selector.register(control, selectors.EVENT_READ, None)
        selector.register(listening, selectors.EVENT_READ, listening)
        while _turn(selector, scratch, file.fileno()):
            pass


def _turn(selector: selectors.BaseSelector, scratch: memoryview, file: int) -> bool:
    """Handle what is ready; false when the owner is gone."""
    for key, _ in selector.select():
        match key.data:
            case None:
                return False
            case _Peer() as peer:
                if not peer.receive(scratch):
                    selector.unregister(key.fileobj)
            case listening:
                sock, _ = listening.accept()
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                selector.register(sock, selectors.EVENT_READ, _Peer(sock, file))
    return True
