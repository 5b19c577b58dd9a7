"""Brokers as processes of one cluster, and each broker's view of it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import RawConnection
from tests.support.processes.waiting import until

SESSION_S = 6.0
"""A session timeout that busy machines keep and that tests can wait for."""

NO_LEADER = -1
METADATA_VERSION = 9


class BrokerCluster:
    """Brokers 1, 2, ... on one ZooKeeper. A context manager that kills them at its end."""

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
        """Create a broker without starting it. The default folder is named after the broker."""
        name = folder or f"broker-{broker_id}"
        options = (*self._options, "--broker-id", str(broker_id))
        return BrokerProcess(self._folder / name, *options, name=name)

    def serve(self) -> Self:
        """Start all brokers and wait until each knows the others."""
        for broker in self.brokers.values():
            broker.serve()
        self.until_live(*self.brokers)
        return self

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    def live_at(self, broker_id: int) -> list[int]:
        """Return the ids of the live brokers according to this broker."""
        return sorted(node.node_id for node in self._metadata(broker_id, []).brokers)

    def address_at(self, broker_id: int, of: int) -> str | None:
        """Return a broker's address according to another broker, or None if it is not live."""
        nodes = self._metadata(broker_id, []).brokers
        return next((f"{node.host}:{node.port}" for node in nodes if node.node_id == of), None)

    def until_live(self, *broker_ids: int) -> None:
        """Wait until each of these brokers reports exactly these as live."""
        until(
            lambda: all(self.live_at(one) == sorted(broker_ids) for one in broker_ids),
            f"{broker_ids} live",
        )

    def leaders_at(self, broker_id: int, topic: str) -> list[int]:
        """Return the leader of each partition according to this broker. Empty if unknown."""
        (found,) = self._metadata(broker_id, [topic]).topics
        by_number = {each.partition_index: each.leader_id for each in found.partitions}
        return [by_number[number] for number in range(len(by_number))]

    def first_leaders_at(self, broker_id: int, topic: str) -> list[int]:
        """Wait until this broker knows a new topic, and return its leaders."""
        until(lambda: self.leaders_at(broker_id, topic), f"broker {broker_id} knows {topic}")
        return self.leaders_at(broker_id, topic)

    def until_leaders(self, topic: str, leaders: Sequence[int], *, at: Sequence[int] = ()) -> None:
        """Wait until all brokers, or some, report these leaders."""
        until(
            lambda: all(self.leaders_at(one, topic) == list(leaders) for one in at or self.brokers),
            f"{topic} is led by {leaders}",
        )

    def partition_led_by(self, broker_id: int, topic: str) -> int:
        """Return the first partition that a broker leads."""
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
