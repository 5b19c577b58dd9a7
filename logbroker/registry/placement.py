"""Which brokers get the partitions of a new or growing topic."""

from collections import Counter
from collections.abc import Iterable

from logbroker.registry.topic import Topic


def place_partitions(
    count: int, brokers: Iterable[int], topics: Iterable[Topic]
) -> tuple[tuple[int, ...], ...]:
    """One broker for each of `count` partitions, those with the fewest partitions first.

    In turn over all of `brokers`, of which there is at least one, so that a topic is spread as
    evenly as it can be; the partitions of `topics` decide who begins.
    """
    load = Counter(
        replica for topic in topics for replicas in topic.replicas for replica in replicas
    )
    order = sorted(brokers, key=lambda broker: (load[broker], broker))
    return tuple((order[number % len(order)],) for number in range(count))
