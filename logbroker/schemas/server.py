"""The process of the registry: listens, reads the log, serves until a signal."""

import logging
import signal
import socket
import ssl
import sys
import threading
from contextlib import closing
from typing import Final

import uvicorn

from logbroker.bounded_http import BoundedHttp
from logbroker.errors import ConfigurationError, LogbrokerError
from logbroker.schemas.access import RequestAccess
from logbroker.schemas.domain.registry import SchemaRegistry
from logbroker.schemas.journal import SchemaJournal
from logbroker.schemas.service import RegistryService
from logbroker.security.tls import TlsFiles

GRACE_S: Final = 10
"""Time for running requests to finish when the process stops."""


class RegistryHttp(BoundedHttp):
    """The protocol of a registry: few clients connect, and each sends few requests."""

    connections_max = 500
    connections_rejected_max = 0


class RegistryServer:
    """Serves a registry on one address.

    It listens from the start: until the log was read, requests get 500 and code 50001, and
    `/readyz` 503. It stops if the log cannot hold a registry.
    """

    def __init__(
        self,
        journal: SchemaJournal,
        host: str,
        port: int,
        *,
        is_read_only: bool = False,
        access: RequestAccess | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Listen; without `access` for everybody, without `tls` unencrypted.

        Raises:
            ConfigurationError: the address cannot be bound, or a file of `tls` cannot be used.
        """
        self._journal = journal
        self._host = host
        self._listener = _listener(host, port)
        registry = SchemaRegistry(journal, is_read_only=is_read_only)
        self._service = RegistryService(registry, journal.catch_up, access)
        self._uvicorn = uvicorn.Server(_config(self._service, tls))

    def stop(self) -> None:
        """Stop serving, from any thread."""
        self._uvicorn.should_exit = True

    def run(self) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; writes a line to standard error when it is ready.

        Raises:
            LogbrokerError: the log cannot hold a registry, or was replaced.
        """
        # Uvicorn's own messages are off; the line below replaces them.
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
        _survive_stopping()
        with closing(self._service), self._listener, self._journal:
            threading.Thread(target=self._watch, daemon=True).start()
            self._uvicorn.run(sockets=[self._listener])
            failure = self._journal.wait_until_over(0)
        if failure is not None:
            raise failure

    def _watch(self) -> None:
        """Report that the log was read, and stop when reading ends."""
        try:
            self._journal.wait_until_ready()
        except LogbrokerError:
            self.stop()
            return
        if not self._uvicorn.should_exit:
            # In one write, or a log line of another thread could be in the middle.
            sys.stderr.write(f"logbroker registry ready on {self._address}\n")
            sys.stderr.flush()
        self._journal.wait_until_over()
        self.stop()

    @property
    def _address(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{host}:{self._listener.getsockname()[1]}"


def _config(service: RegistryService, tls: TlsFiles | None) -> uvicorn.Config:
    config = uvicorn.Config(
        service,
        http=RegistryHttp,
        ws="none",
        lifespan="off",
        interface="asgi3",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        ssl_certfile=tls and tls.certificate,
        ssl_keyfile=tls and tls.key,
        ssl_ca_certs=tls and tls.ca and str(tls.ca),
        ssl_cert_reqs=ssl.CERT_REQUIRED if tls and tls.ca else ssl.CERT_NONE,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(f"cannot use the files for TLS: {error}") from error
    return config


def _listener(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family)
    except OSError as error:
        raise ConfigurationError(f"cannot listen on {host}:{port}: {error}") from error
    # Connections inherit it. A response is a head and a body; without it the body would wait until
    # the client has acknowledged the head, which it delays by 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def _survive_stopping() -> None:
    """Let the log be closed after the signal that stopped the server.

    Uvicorn raises the signal again after it stopped, for the previous handler; the default handler
    would end the process at once.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
