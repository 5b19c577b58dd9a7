"""Brokers of one cluster on this machine, each in a separate process."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.cold_requests import cold_connection
from benchmarks.running_broker import RunningBroker, running_broker, until


class RunningCluster:
    """A running cluster, with its brokers by id from 1."""

    def __init__(self, brokers: Mapping[int, RunningBroker]) -> None:
        self.brokers = brokers
        self.bootstrap_servers = ",".join(each.bootstrap_servers for each in brokers.values())

    def create_topic(self, name: str, partitions: int) -> list[RunningBroker]:
        """Create a topic that every broker knows then; return the leader of each partition."""
        next(iter(self.brokers.values())).create_topic(name, partitions)
        until(
            lambda: all(self._knows(each, name) for each in self.brokers.values()),
            f"every broker knows {name}",
        )
        leaders = self._leaders(next(iter(self.brokers.values())), name)
        return [self.brokers[leaders[number]] for number in range(partitions)]

    def cpu_s(self) -> float:
        """Return the sum of the CPU seconds of all brokers."""
        return sum(each.cpu_s() for each in self.brokers.values())

    def _knows(self, broker: RunningBroker, topic: str) -> bool:
        leaders = self._leaders(broker, topic)
        return bool(leaders) and set(leaders.values()) <= self.brokers.keys()

    def _leaders(self, broker: RunningBroker, topic: str) -> dict[int, int]:
        with cold_connection(broker.address) as connection:
            (found,) = connection.get_metadata([topic]).topics
        return {each.partition_index: each.leader_id for each in found.partitions}


@contextmanager
def running_cluster(folder: Path, zookeeper: str, count: int) -> Iterator[RunningCluster]:
    """Run `count` brokers with their data in `folder`; kill them at the end."""
    with ExitStack() as stack:
        brokers = {
            broker_id: stack.enter_context(
                running_broker(
                    folder / f"broker-{broker_id}",
                    options=broker_options(broker_id, zookeeper),
                    keeps_data=False,
                )
            )
            for broker_id in range(1, count + 1)
        }
        cluster = RunningCluster(brokers)
        until(
            lambda: all(_count_live_brokers(each) == count for each in brokers.values()),
            "all brokers are alive",
        )
        yield cluster


def broker_options(broker_id: int, zookeeper: str) -> tuple[str, ...]:
    """Return the options of a broker in a cluster."""
    return ("--broker-id", str(broker_id), "--zookeeper", zookeeper)


def _count_live_brokers(broker: RunningBroker) -> int:
    """Return the number of live brokers in this broker's Metadata response."""
    with cold_connection(broker.address) as connection:
        return len(connection.get_metadata([]).brokers)
