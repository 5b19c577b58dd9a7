"""A TCP proxy with network faults."""

import contextlib
import socket
from threading import Event, Lock, Thread
from typing import Self


class TcpLink:
    """Forwards bytes between clients of `port` and a server on the loopback interface.

    A context manager: at its end every connection is closed.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._flows = Event()
        self._flows.set()
        self._is_whole = True
        self._is_deaf = False
        self.ignored: list[socket.socket] = []
        """Accepted connections that are never answered."""
        self._sockets: set[socket.socket] = set()
        self._near: set[socket.socket] = set()
        self._changing = Lock()
        self._accepting = Thread(target=self._accept, daemon=True)

    @property
    def address(self) -> str:
        """`HOST:PORT` to connect to."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        # `close` does not wake the accepting thread.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self.cut()
        self._flows.set()
        for each in self.ignored:
            each.close()

    def cut(self) -> None:
        """Close all connections and reject new ones."""
        with self._changing:
            self._is_whole = False
            for each in self._sockets:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def stall(self) -> None:
        """Hold back all bytes. Connections stay open, and new ones are accepted."""
        self._flows.clear()

    def ignore(self) -> None:
        """Close all connections. Accept new ones without ever responding."""
        self.cut()
        self._is_deaf = True

    def mend(self) -> None:
        """Forward bytes again, first those that were held back."""
        self._is_whole = True
        self._is_deaf = False
        self._flows.set()

    def say_to_clients(self, content: bytes) -> None:
        """Send bytes to all clients, as if the server had sent them."""
        with self._changing:
            for each in self._near:
                each.sendall(content)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._connect(near)

    def _connect(self, near: socket.socket) -> None:
        with self._changing:
            if self._is_deaf:
                self.ignored.append(near)
                return
            try:
                if not self._is_whole:
                    raise ConnectionRefusedError
                far = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                near.close()
                return
            self._sockets |= {near, far}
            self._near.add(near)
        for source, sink in ((near, far), (far, near)):
            Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(65_536):
                self._flows.wait()
                sink.sendall(content)
        with self._changing:
            self._sockets.discard(source)
            self._near.discard(source)
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)
            source.close()
