"""The size of logs on disk, over connections of our own: stock clients cannot request it."""

from collections.abc import Iterable, Mapping
from typing import Final

from app.config import Settings
from app.log.inspection.figures import Gaps
from logbroker.client.admin import TopicAndPartition
from logbroker.errors import LogbrokerError

FIGURE: Final = "bytes"

_BROKERS_TRIED: Final = 3
"""Brokers tried one after the other within one timeout, if the first ones hang."""

_WAITS: Final = frozenset(("request.timeout.ms", "socket.timeout.ms"))


class LogSizeReader:
    """Connects for each page: thread-safe, and needs no closing.

    The lookup of leaders and the requests to them take up to `timeout_s` each.
    """

    def __init__(self, settings: Settings, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        properties = settings.kafka_properties
        self._properties = {
            "bootstrap.servers": settings.bootstrap_servers,
            "client.id": "rewind-inspector",
            **{name: value for name, value in properties.items() if name not in _WAITS},
            # If a broker hangs, another one is tried.
            "request.timeout.ms": str(round(timeout_s * 1_000 / _BROKERS_TRIED)),
        }

    def read(
        self, topic_partitions: Iterable[TopicAndPartition], gaps: Gaps
    ) -> Mapping[TopicAndPartition, int]:
        """Return the size of each log at its leader, as far as known."""
        # It imports kafka-python, which takes a fifth of the API's start-up time.
        from logbroker.client.raw import RawCluster, TopicPartition, log_sizes

        wanted = [TopicPartition(*tp) for tp in topic_partitions]
        if not wanted:
            return {}
        try:
            with RawCluster(self._properties, timeout_s=self._timeout_s) as cluster:
                sizes = log_sizes(cluster, wanted)
        except LogbrokerError as error:  # such as a SASL mechanism of the stock client only
            gaps.add(FIGURE, "; ".join(str(error).splitlines()))
            return {}
        if sizes.problem is not None:
            gaps.add(FIGURE, sizes.problem)
        return {(*tp,): size for tp, size in sizes.of.items() if size is not None}
