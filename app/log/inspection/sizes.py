"""How much disk logs take, asked over connections of our own: stock clients cannot ask."""

import threading
from collections.abc import Iterable, Mapping
from typing import Final

from app.config import Settings
from app.log.inspection.deadline import Deadline
from app.log.inspection.gaps import Gaps
from app.log.inspection.questions import Place
from logbroker.client.raw import RawCluster, TopicPartition, log_sizes
from logbroker.errors import ConfigurationError, LogbrokerError

FIGURE: Final = "bytes"

_TIMEOUT_S: Final = 1.5
"""For the question and for the look at who leads, each: both end within the time of a page."""


class LogSizeReader:
    """Keeps connections, which one thread at a time may use; others wait for it."""

    def __init__(self, settings: Settings) -> None:
        self._properties = {
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": "rewind-inspector",
            **settings.kafka_properties,
        }
        self._lock = threading.Lock()
        self._cluster: RawCluster | None = None

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._cluster is not None:
                self._cluster.close()
                self._cluster = None

    def read(self, places: Iterable[Place], deadline: Deadline, gaps: Gaps) -> Mapping[Place, int]:
        """The bytes of each log at its leader, as far as they are told until then."""
        wanted = [TopicPartition(*place) for place in places]
        if not wanted:
            return {}
        if not self._lock.acquire(timeout=deadline.left_s):
            gaps.note(FIGURE, "others ask for sizes at present")
            return {}
        try:
            told = log_sizes(self._connected(), wanted)
        except (ConfigurationError, LogbrokerError) as error:
            gaps.note(FIGURE, str(error))
            return {}
        finally:
            self._lock.release()
        if told.problem is not None:
            gaps.note(FIGURE, told.problem)
        return {(*place,): size for place, size in told.of.items() if size is not None}

    def _connected(self) -> RawCluster:
        if self._cluster is None:
            self._cluster = RawCluster(self._properties, timeout_s=_TIMEOUT_S)
        return self._cluster
