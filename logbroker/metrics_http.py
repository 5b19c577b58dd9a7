"""Serves Prometheus metrics over HTTP, to this machine and to clients with a token.

Processes that can stall serve `/readyz` at the same port, to everybody, as probes have no token.

Connections have threads of their own, so that the process answers a scrape while it is busy. Their
number and the time of each are limited: every client that reaches the port may connect.
"""

import hmac
import ipaddress
import json
import logging
import socket
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app

CONNECTIONS_MAX: Final = 16
CONNECTION_S: Final = 10.0
"""How long a client may send or read nothing."""

TOKEN_BYTES_MAX: Final = 4096

Problems = Callable[[], Sequence[str]]
"""Why the process is not ready; empty if it is."""

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_log: Final = logging.getLogger(__name__)


class MetricsAccess(NamedTuple):
    """Who receives metrics: this machine, and with a token or if it is open other machines."""

    token_file: Path | None = None
    """A file with the token that clients send as `Authorization: Bearer TOKEN`. It is read for each
    request, so that it can be replaced."""

    is_open: bool = False
    """Whether other machines need no token."""

    @classmethod
    def of(cls, token_file: str, *, is_open: bool) -> "MetricsAccess":
        """The access by two settings; no token if `token_file` is empty."""
        return cls(Path(token_file) if token_file else None, is_open)

    def admits(self, client: str, authorization: str) -> bool:
        """Whether a client with this address and this header receives metrics."""
        return self.is_open or _is_loopback(client) or self._is_token(authorization)

    def _is_token(self, authorization: str) -> bool:
        if self.token_file is None:
            return False
        try:
            with self.token_file.open("rb") as file:
                token = file.read(TOKEN_BYTES_MAX).strip()
        except OSError as error:
            _log.warning("token not read reason=%s", error)
            return False
        scheme, _, sent = authorization.partition(" ")
        is_same = hmac.compare_digest(sent.strip().encode("latin-1", "replace"), token)
        return bool(token) and scheme.lower() == "bearer" and is_same


def serve_metrics(
    registry: CollectorRegistry,
    host: str,
    port: int,
    access: MetricsAccess,
    problems: Problems | None = None,
) -> WSGIServer:
    """Serve metrics on a thread until the process ends; with `problems`, also `/readyz`.

    Raises:
        OSError: the address cannot be bound.
    """
    application = _guarded(make_wsgi_app(registry), access)
    if problems is not None:
        application = _with_readiness(application, problems)
    server = make_server(host, port, application, _Ipv6Server if ":" in host else _Server, _Handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _guarded(application: Any, access: MetricsAccess) -> Application:
    def answer(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        authorization = environment.get("HTTP_AUTHORIZATION", "")
        if access.admits(environment["REMOTE_ADDR"], authorization):
            answered: Iterable[bytes] = application(environment, start_response)
            return answered
        headers = [("content-type", "text/plain; charset=utf-8"), ("www-authenticate", "Bearer")]
        start_response("401 Unauthorized", headers)
        return [b"Clients on other machines send the metrics token as a bearer token.\n"]

    return answer


def _with_readiness(application: Application, problems: Problems) -> Application:
    def answer(environment: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environment["PATH_INFO"] != "/readyz":
            return application(environment, start_response)
        found = list(problems())
        status = "503 Service Unavailable" if found else "200 OK"
        start_response(status, [("content-type", "application/json")])
        document = {"status": "not ready", "problems": found} if found else {"status": "ok"}
        return [json.dumps(document).encode()]

    return answer


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a limited number of connections."""

    daemon_threads = True

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self._free = threading.Semaphore(CONNECTIONS_MAX)
        super().__init__(*arguments, **settings)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own; close a connection above the limit."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer, and make room for another connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore what goes wrong with one client, such as its silence."""


class _Ipv6Server(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Answers without a line for each request."""

    timeout = CONNECTION_S

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _is_loopback(address: str) -> bool:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
