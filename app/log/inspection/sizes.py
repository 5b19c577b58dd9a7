"""How much disk logs take, asked over connections of our own: stock clients cannot ask."""

from collections.abc import Iterable, Mapping
from typing import Final

from app.config import Settings
from app.log.inspection.gaps import Gaps
from app.log.inspection.questions import Place
from logbroker.client.raw import RawCluster, TopicPartition, log_sizes
from logbroker.errors import LogbrokerError

FIGURE: Final = "bytes"


class LogSizeReader:
    """Connects anew for each page: safe to use from any thread, and nothing to close.

    The look at who leads, and the question to the leaders, take up to `timeout_s` each.
    """

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._properties = {
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": "rewind-inspector",
            **settings.kafka_properties,
        }

    def read(self, places: Iterable[Place], gaps: Gaps) -> Mapping[Place, int]:
        """The bytes of each log at its leader, as far as they are told."""
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
