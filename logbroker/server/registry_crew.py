"""What is asked of the registry, beside the loop's thread, for which it may be seconds."""

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from logbroker.server.connection import Connection
from logbroker.server.loop import SocketLoop
from logbroker.server.workers import Workers

log = logging.getLogger("logbroker.registry_crew")

CLOSE_S: Final = 2.0
"""How long a broker that stops waits for the registry; those who asked are gone by then."""

T = TypeVar("T")


class RegistryCrew:
    """One thread that asks in the order in which requests came.

    By the time an answer is back on the loop's thread, the views that the question made have
    been followed there: the registry hands them over before it returns, and the inbox keeps order.
    """

    def __init__(self, loop: SocketLoop) -> None:
        self._workers = Workers(loop, "registry", 1)

    def ask(
        self, connection: Connection, question: Callable[[], T], answered: Callable[[T], None]
    ) -> None:
        """Run `question` on the crew's thread, then `answered` with its result on the loop's.

        Refusals are results. Any other error, in either, is a defect of ours: it costs the
        connection that asked, and nobody else's.
        """

        def finish(result: T | Exception) -> None:
            try:
                if isinstance(result, Exception):
                    raise result
                answered(result)
            except Exception:
                log.exception("request failed peer=%s", connection.peer)
                connection.close("internal error")

        self._workers.run(question, finish)

    def close(self) -> None:
        """Let what is being asked end, if it does so soon: ZooKeeper may not answer for minutes."""
        self._workers.abandon(CLOSE_S)
