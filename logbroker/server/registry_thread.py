"""Runs registry calls on a thread of their own, since one call may block for seconds."""

import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from logbroker.errors import RequestRefused
from logbroker.server.connection import Connection
from logbroker.server.loop import SocketLoop
from logbroker.server.worker_pool import WorkerPool

log = logging.getLogger("logbroker.registry_thread")

CLOSE_TIMEOUT_S: Final = 2.0
"""How long shutdown waits for the registry; the clients are disconnected by then."""

T = TypeVar("T")


class RegistryThread:
    """One thread that runs registry calls in the order of their requests.

    The views that a call caused are applied on the loop's thread before its result arrives
    there: the registry queues them before it returns, and `call_after_views` waits for them.
    """

    def __init__(
        self, loop: SocketLoop, call_after_views: Callable[[Callable[[], None]], None]
    ) -> None:
        self._call_after_views = call_after_views
        self._pool = WorkerPool(loop, "registry", 1)

    def submit(
        self, connection: Connection, call: Callable[[], T], done: Callable[[T], None]
    ) -> None:
        """Run `call` on the thread, then `done` with its result on the loop's thread.

        A `RequestRefused` that `call` raises is its result. Any other error is a defect: it closes
        only the connection of the request.
        """

        def finish(result: Any) -> None:
            try:
                if isinstance(result, Exception) and not isinstance(result, RequestRefused):
                    raise result
                done(result)
            except Exception:
                log.exception("request failed peer=%s", connection.peer)
                connection.close("internal error")

        self._pool.submit(call, lambda result: self._call_after_views(lambda: finish(result)))

    def close(self) -> None:
        """Wait briefly for the running call: ZooKeeper may not respond for minutes."""
        self._pool.abandon(CLOSE_TIMEOUT_S)
