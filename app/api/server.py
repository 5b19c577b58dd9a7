"""The API as a process: opens its doors, serves until it is told to stop, closes them."""

import asyncio
import logging
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from typing import Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from app.api.application import create_app
from app.api.bounded_http import CONNECTIONS_MAX, BoundedHttp
from app.api.metrics import Metrics
from app.api.progress_watch import ProgressWatch
from app.config import Settings
from app.domain.processes import ProcessKind
from app.log.errors import LogUnavailable
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.process import allow_many_connections
from app.store import Store
from app.store.process_heartbeat import ProcessHeartbeat, process_name
from app.webhooks.guard import Guard
from app.webhooks.limits import SenderLimits
from app.webhooks.sender import WebhookSender
from logbroker.json_log import configure_logging

LOG_TIMEOUT_S: Final = 5.0
"""How long a request may wait for the log to say what it holds; probes wait no longer."""

GRACE_S: Final = 10
"""How long requests that are under way may take to end when the process is to stop."""


class ApiServer(uvicorn.Server):
    """A server that says on stderr when it accepts connections, and where."""

    def __init__(self, watch: ProgressWatch, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._watch = watch

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, then say so."""
        await super().startup(sockets)
        if not self.should_exit:
            for server in self.servers:
                for listener in server.sockets:
                    # In one piece, or a log line of another thread could end up in the middle.
                    sys.stderr.write(f"rewind api ready on {_url(listener)}\n")
            sys.stderr.flush()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let requests under way end; streams, which would not by themselves, are told to."""
        self._watch.close()
        await super().shutdown(sockets)


def _url(listener: socket.socket) -> str:
    host, port, *_ = listener.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _as_it_is(application: FastAPI) -> ASGIApp:
    return application


def server_of(
    application: FastAPI, settings: Settings, around: Callable[[FastAPI], ASGIApp] = _as_it_is
) -> ApiServer:
    """A server of `application`, not running yet; `around` puts something in front of it."""
    return ApiServer(
        application.state.doors.watch,
        uvicorn.Config(
            around(application),
            host=settings.host,
            port=settings.port,
            http=BoundedHttp,
            limit_concurrency=CONNECTIONS_MAX + 1,
            ws="none",
            # Else whoever comes from loopback could choose the address that the audit names.
            proxy_headers=False,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE_S,
        ),
    )


def serve(settings: Settings, around: Callable[[FastAPI], ASGIApp] = _as_it_is) -> int:
    """Serve the API until SIGINT or SIGTERM; the exit code: 1 when it cannot listen.

    `around` makes what is served of it, such as the API with the console in front.
    The database and the log may come up later than this process: `/readyz` tells when they have.
    """
    configure_logging()
    try:
        asyncio.run(_serve(settings, around))
    except SystemExit:
        # Uvicorn has said why, and has a code of its own for it.
        return 1
    return 0


async def _serve(settings: Settings, around: Callable[[FastAPI], ASGIApp]) -> None:
    _survive_stopping()
    allow_many_connections()
    guard = Guard.of(settings)
    history = LogHistory(
        settings.bootstrap_servers, properties=settings.kafka_properties, timeout_s=LOG_TIMEOUT_S
    )
    metrics = Metrics()
    publisher = EventPublisher.of(
        settings, topics_timeout_s=LOG_TIMEOUT_S, on_audit_dropped=metrics.audit_dropped.inc
    )
    limits = SenderLimits(connect_s=settings.connect_timeout_s, total_s=settings.delivery_timeout_s)
    with closing(Store.open(settings.database)) as store:
        heartbeat = ProcessHeartbeat(
            store, ProcessKind.API, process_name(settings), settings.origin
        )
        async with publisher, WebhookSender(guard, limits) as sender, heartbeat:
            await _make_topics(publisher)
            application = create_app(settings, store, publisher, history, guard, sender, metrics)
            await server_of(application, settings, around).serve()


async def _make_topics(publisher: EventPublisher) -> None:
    try:
        await publisher.make_topics()
    except LogUnavailable as error:
        logging.getLogger("rewind.api").warning("topics are made later: %s", error)


def _survive_stopping() -> None:
    """Let the doors be closed after the signal that stopped the server.

    Uvicorn raises it anew once it has stopped, for the handler that was there before; the
    default one would end the process on the spot.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
