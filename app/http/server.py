"""The HTTP server process of the API and the console."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from app.config import Settings
from app.http.trusted_proxies import TrustedProxies
from app.process import (
    allow_many_connections,
    report_crashes,
    return_freed_memory,
    run_event_loop,
)
from app.services.services import Services, open_services
from app.store import SecretKeyMissing
from logbroker.bounded_http import BoundedHttp
from logbroker.json_log import configure_logging

_log: Final = logging.getLogger("rewind.api")

GRACE_S: Final = 10
"""How long requests may take to finish when the process stops."""

_TICK_S: Final = 1.0
"""How often the header `Date` of responses is renewed: it has seconds."""


class ApiServer(uvicorn.Server):
    """A Uvicorn server that writes its address to stderr, and ends streams when it stops."""

    def __init__(self, services: Services, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._services = services
        self._exiting = asyncio.Event()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop, on a signal."""
        super().handle_exit(sig, frame)
        self._exiting.set()

    async def main_loop(self) -> None:
        """Return when the server is to stop; Uvicorn's own looks ten times a second."""
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._exiting.wait()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then write the readiness line."""
        await super().startup(sockets)
        if not self.should_exit:
            for server in self.servers:
                for listener in server.sockets:
                    # One write: a log line of another thread must not end up in the middle.
                    sys.stderr.write(f"rewind api ready on {_url(listener)}\n")
            sys.stderr.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, which would not end by themselves, and wait for other requests."""
        self._services.progress_watch.close()
        await super().shutdown(sockets)


def _url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def server_of(application: ASGIApp, services: Services) -> ApiServer:
    """A server of `application`, not started."""
    settings = services.settings
    if settings.proxy_networks:
        application = TrustedProxies(
            application, settings.proxy_networks, settings.forwarded_header
        )
    return ApiServer(
        services,
        uvicorn.Config(
            application,
            host=settings.host,
            port=settings.port,
            http=BoundedHttp,
            limit_concurrency=BoundedHttp.connections_max + 1,
            ws="none",
            # Uvicorn trusts loopback by default, and would believe any client there.
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        ),
    )


def serve(
    settings: Settings,
    create_application: Callable[[Services], ASGIApp],
    listener: socket.socket | None = None,
) -> int:
    """Serve an application until SIGINT or SIGTERM; the exit code: 1 if it cannot start.

    `listener` is a socket that is bound to the address of the settings.
    """
    configure_logging()
    try:
        run_event_loop(_serve(settings, create_application, listener))
    except SystemExit:
        # Uvicorn has logged the reason, and uses another exit code.
        return 1
    except SecretKeyMissing as error:
        _log.error("cannot-start", extra={"reason": str(error)})
        return 1
    return 0


async def _serve(
    settings: Settings,
    create_application: Callable[[Services], ASGIApp],
    listener: socket.socket | None,
) -> None:
    _survive_stopping()
    allow_many_connections()
    report_crashes()
    return_freed_memory()
    async with open_services(settings) as services:
        server = server_of(create_application(services), services)
        await server.serve(None if listener is None else [listener])


def _survive_stopping() -> None:
    """Ignore the signals that stop the server, so that the services are closed.

    Uvicorn raises the signal again after it has stopped, for the previous handler; the default one
    would end the process.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
