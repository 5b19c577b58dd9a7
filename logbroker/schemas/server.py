"""The registry as a process: listens, reads the log, serves until it is told to stop."""

import logging
import signal
import socket
import sys
import threading
from contextlib import closing
from typing import Final

import uvicorn

from logbroker.errors import ConfigurationError, LogbrokerError
from logbroker.schemas.bounded_http import BoundedHttp
from logbroker.schemas.journal import SchemaJournal
from logbroker.schemas.registry import SchemaRegistry
from logbroker.schemas.service import RegistryService

GRACE_S: Final = 10
"""How long requests that are under way may take to end when the process is to stop."""


class RegistryServer:
    """Serves a registry on one address.

    It listens from the beginning: until the log was read, requests are refused with 500 and code
    50001, and `/readyz` with 503. When the log turns out to be none for a registry, it stops.
    """

    def __init__(
        self, journal: SchemaJournal, host: str, port: int, *, is_read_only: bool = False
    ) -> None:
        """Listen.

        Raises:
            ConfigurationError: the address cannot be bound.
        """
        self._journal = journal
        self._host = host
        self._listener = _listener(host, port)
        registry = SchemaRegistry(journal, is_read_only=is_read_only)
        self._service = RegistryService(registry, journal.catch_up)
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                self._service,
                http=BoundedHttp,
                ws="none",
                lifespan="off",
                interface="asgi3",
                proxy_headers=False,
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE_S,
            )
        )

    def stop(self) -> None:
        """Stop serving, from any thread."""
        self._uvicorn.should_exit = True

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; says on standard error when it is ready.

        Raises:
            LogbrokerError: the log is none for a registry, or was replaced.
        """
        # Uvicorn tells of its start and end; the line below does.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        _survive_stopping()
        with closing(self._service), self._listener, self._journal:
            threading.Thread(target=self._watch, daemon=True).start()
            self._uvicorn.run(sockets=[self._listener])
            failure = self._journal.wait_until_over(0)
        if failure is not None:
            raise failure

    def _watch(self) -> None:
        """Say when the log was read, and stop when it is not read any more."""
        try:
            self._journal.wait_until_ready()
        except LogbrokerError:
            self.stop()
            return
        if not self._uvicorn.should_exit:
            # In one piece, or a log line of another thread could end up in the middle.
            sys.stderr.write(f"logbroker registry ready on {self._address}\n")
            sys.stderr.flush()
        self._journal.wait_until_over()
        self.stop()

    @property
    def _address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._listener.getsockname()[1]}"


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}") from error
    # Connections inherit it. An answer is a head and a body; without it the body would wait until
    # the client has acknowledged the head, which it puts off for 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _survive_stopping() -> None:
    """Let the log be closed after the signal that stopped the server.

    Uvicorn raises it anew once it has stopped, for the handler that was there before; the default
    one would end the process on the spot.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
