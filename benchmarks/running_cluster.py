"""Brokers of one cluster on this machine, each in a process of its own."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.cold_requests import cold_connection
from benchmarks.running_broker import RunningBroker, running_broker, until


class RunningCluster:
    """Brokers 1, 2, ... by their ids."""

    def __init__(self, brokers: Mapping[int, RunningBroker]) -> None:
        self.brokers = brokers
        self.bootstrap_servers = ",".join(each.bootstrap_servers for each in brokers.values())

    def create_topic(self, name: str, partitions: int) -> list[RunningBroker]:
        """A new topic, once every broker knows of it: the broker of each partition."""
        next(iter(self.brokers.values())).create_topic(name, partitions)
        until(
            lambda: all(self._knows(each, name) for each in self.brokers.values()),
            f"every broker knows {name}",
        )
        leaders = self._leaders(next(iter(self.brokers.values())), name)
        return [self.brokers[leaders[number]] for number in range(partitions)]

    def cpu_s(self) -> float:
        """Processor seconds that all brokers have used together."""
        return sum(each.cpu_s() for each in self.brokers.values())

    def _knows(self, broker: RunningBroker, topic: str) -> bool:
        leaders = self._leaders(broker, topic)
        return bool(leaders) and set(leaders.values()) <= self.brokers.keys()

    def _leaders(self, broker: RunningBroker, topic: str) -> dict[int, int]:
        with cold_connection(broker.address) as connection:
            (found,) = connection.metadata([topic]).topics
        return {each.partition_index: each.leader_id for each in found.partitions}


@contextmanager
def running_cluster(folder: Path, zookeeper: str, count: int) -> Iterator[RunningCluster]:
    """So many brokers with their data in `folder`, killed at the end: nobody needs it then."""
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
        until(lambda: all(_live(each) == count for each in brokers.values()), "all brokers live")
        yield cluster


def broker_options(broker_id: int, zookeeper: str) -> tuple[str, ...]:
    """What makes a broker one of a cluster."""
    return ("--broker-id", str(broker_id), "--zookeeper", zookeeper)


def _live(broker: RunningBroker) -> int:
    """How many brokers live, as this one sees it."""
    with cold_connection(broker.address) as connection:
        return len(connection.metadata([]).brokers)
