"""Brokers as processes of one cluster, and what each of them says of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import RawConnection
from tests.support.processes.waiting import until

SESSION_S = 6.0
"""Long enough for a machine that stalls, and as long as a test waits for a session to end."""

NO_LEADER = -1
METADATA_VERSION = 9


class BrokerCluster:
    """Brokers 1, 2, ... on one ZooKeeper; a context manager, at whose end all are gone."""

    def __init__(
        self,
        folder: Path,
        zookeeper: str,
        *options: str,
        count: int = 3,
        session_s: float = SESSION_S,
    ) -> None:
        self.zookeeper = zookeeper
        self._folder = folder
        self._options = (
            *("--zookeeper", zookeeper),
            *("--zookeeper-session-timeout-s", str(session_s)),
            *options,
        )
        self.brokers = {number: self.make_broker(number) for number in range(1, count + 1)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for broker in self.brokers.values():
            broker.__exit__(*error)

    def make_broker(self, broker_id: int, folder: str | None = None) -> BrokerProcess:
        """A broker that is not started yet; on a folder of its own unless one is named."""
        name = folder or f"broker-{broker_id}"
        options = (*self._options, "--broker-id", str(broker_id))
        return BrokerProcess(self._folder / name, *options, name=name)

    def serve(self) -> Self:
        """Start all, and wait until each knows of the others."""
        for broker in self.brokers.values():
            broker.serve()
        self.until_live(*self.brokers)
        return self

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def live_at(self, broker_id: int) -> list[int]:
        """Who lives, if one asks this broker."""
        return sorted(node.node_id for node in self._metadata(broker_id, []).brokers)

    def address_at(self, broker_id: int, of: int) -> str | None:
        """Where a broker is to be found, if one asks another; none where it does not live."""
        nodes = self._metadata(broker_id, []).brokers
        return next((f"{node.host}:{node.port}" for node in nodes if node.node_id == of), None)

    def until_live(self, *broker_ids: int) -> None:
        """Wait until each of these brokers says that just these live."""
        until(
            lambda: all(self.live_at(one) == sorted(broker_ids) for one in broker_ids),
            f"{broker_ids} live",
        )

    def leaders_at(self, broker_id: int, topic: str) -> list[int]:
        """The leader of each partition, if one asks this broker; empty without such a topic."""
        (found,) = self._metadata(broker_id, [topic]).topics
        by_number = {each.partition_index: each.leader_id for each in found.partitions}
        return [by_number[number] for number in range(len(by_number))]

    def first_leaders_at(self, broker_id: int, topic: str) -> list[int]:
        """The leaders of a topic just made, once this broker has heard of it."""
        until(lambda: self.leaders_at(broker_id, topic), f"broker {broker_id} knows {topic}")
        return self.leaders_at(broker_id, topic)

    def until_leaders(self, topic: str, leaders: Sequence[int], *, at: Sequence[int] = ()) -> None:
        """Wait until the partitions have these leaders at each broker, or at some."""
        until(
            lambda: all(self.leaders_at(one, topic) == list(leaders) for one in at or self.brokers),
            f"{topic} is led by {leaders}",
        )

    def partition_led_by(self, broker_id: int, topic: str) -> int:
        """The first partition of a broker."""
        return self.leaders_at(broker_id, topic).index(broker_id)

    @contextmanager
    def connection(self, broker_id: int) -> Iterator[RawConnection]:
        with RawConnection(self.brokers[broker_id].bootstrap_servers) as connection:
            yield connection

    def _metadata(self, broker_id: int, topics: Sequence[str]) -> Any:
        wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        with self.connection(broker_id) as connection:
            return connection.ask(request, MetadataResponse, METADATA_VERSION)
