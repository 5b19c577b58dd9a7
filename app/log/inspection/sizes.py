"""How much disk logs take, asked over connections of our own: stock clients cannot ask."""

from collections.abc import Iterable, Mapping
from typing import Final

from app.config import Settings
from app.log.inspection.gaps import Gaps
from app.log.inspection.questions import Place
from logbroker.errors import LogbrokerError

FIGURE: Final = "bytes"


_BROKERS_ASKED: Final = 3
"""One behind the other in the time for one question, should those before it hang."""

_WAITS: Final = frozenset(("request.timeout.ms", "socket.timeout.ms"))


class LogSizeReader:
    """Connects anew for each page: safe to use from any thread, and nothing to close.

    The look at who leads, and the question to the leaders, take up to `timeout_s` each.
    """

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        given = settings.kafka_properties
        self._properties = {
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": "rewind-inspector",
            **{name: value for name, value in given.items() if name not in _WAITS},
            # Of a broker that hangs, another may be asked for the same.
            "request.timeout.ms": str(round(timeout_s * 1_000 / _BROKERS_ASKED)),
        }

    def read(self, places: Iterable[Place], gaps: Gaps) -> Mapping[Place, int]:
        """The bytes of each log at its leader, as far as they are told."""
        # It brings kafka-python along, which takes a fifth of the time in which the API starts.
        from logbroker.client.raw import RawCluster, TopicPartition, log_sizes

        wanted = [TopicPartition(*place) for place in places]
        if not wanted:
            return {}
        try:
            with RawCluster(self._properties, timeout_s=self._timeout_s) as cluster:
                told = log_sizes(cluster, wanted)
        except LogbrokerError as error:  # such as a way to log in that is the stock client's alone
            gaps.note(FIGURE, "; ".join(str(error).splitlines()))
            return {}
        if told.problem is not None:
            gaps.note(FIGURE, told.problem)
        return {(*place,): size for place, size in told.of.items() if size is not None}
