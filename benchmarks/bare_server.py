"""A server that only moves bytes: the baseline of everything that goes over a socket.

A client first sends the sizes of its requests and of the responses. The server then sends one
response for each request: from memory, as a broker acknowledges a batch, or by `sendfile` from the
page cache, as it serves a fetch. It parses, checks and stores nothing. Like the broker it has one
thread and a selector, so the ratio shows the cost of the broker's own work.
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
"""Respond with the number of received bytes, once the client has shut down its side."""

RECEIVE_BYTES: Final = 512 * 1024
FILE_BYTES: Final = 64 * 2**20

_TERMS: Final = struct.Struct(">iqq")
_SIZE: Final = struct.Struct(">i")
_TOTAL: Final = struct.Struct(">q")


class Terms(NamedTuple):
    """The kind of responses, and the sizes of a request and of a response, in bytes.

    A response from a file starts with its size, an int32, which `response_bytes` includes.
    """

    kind: int
    request_bytes: int
    response_bytes: int

    def encode(self) -> bytes:
        """Return the first bytes that a client sends on a connection."""
        return _TERMS.pack(*self)


class BareServer(NamedTuple):
    """The address of the server, and its process."""

    address: tuple[str, int]
    process: psutil.Process


@contextmanager
def bare_server() -> Iterator[BareServer]:
    """Run the server in a separate process until the end of the block."""
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
    """Return the bytes that a `COUNT` server received, after the client has shut down its side."""
    return int(_TOTAL.unpack(sock.recv(_TOTAL.size, socket.MSG_WAITALL))[0])


class _Peer:
    """One connection; its sends may block, since the client always reads."""

    def __init__(self, sock: socket.socket, file: int) -> None:
        self._sock = sock
        self._file = file
        self._terms = Terms(*_TERMS.unpack(sock.recv(_TERMS.size, socket.MSG_WAITALL)))
        self._acknowledgement = bytes(self._terms.response_bytes)
        self._unanswered_bytes = 0
        self._total_bytes = 0
        self._position = 0

    def receive(self, scratch: memoryview) -> bool:
        """Read once and respond; false when the client has closed the connection."""
        try:
            count = self._sock.recv_into(scratch)
            self._process_bytes(count)
        except ConnectionError:
            # The client stopped in the middle of a response.
            count = 0
        if count == 0:
            self._sock.close()
        return count > 0

    def _process_bytes(self, count: int) -> None:
        self._total_bytes += count
        if self._terms.kind != COUNT:
            self._unanswered_bytes += count
            requests, self._unanswered_bytes = divmod(
                self._unanswered_bytes, self._terms.request_bytes
            )
            self._respond(requests)
        elif count == 0:
            self._sock.sendall(_TOTAL.pack(self._total_bytes))

    def _respond(self, requests: int) -> None:
        if self._terms.kind == ACKNOWLEDGE:
            self._sock.sendall(self._acknowledgement * requests)
            return
        for _ in range(requests):
            self._serve_file()

    def _serve_file(self) -> None:
        left = self._terms.response_bytes - _SIZE.size
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
        while _serve_once(selector, scratch, file.fileno()):
            pass


def _serve_once(selector: selectors.BaseSelector, scratch: memoryview, file: int) -> bool:
    """Handle what is ready; false when the owning process has closed its pipe."""
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
