"""A broker whose turns the test makes itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from logbroker.config import BrokerConfig
from logbroker.server.broker import Broker
from tests.support.processes.waiting import until


@contextmanager
def stepped_broker(config: BrokerConfig, partitions: int = 1) -> Iterator[Broker]:
    """A broker whose turns the test makes, with a topic `events`."""
    broker = Broker(config)
    broker._loop._on_turn_end = broker._end_turn
    broker._registry.create_topic("events", [(0,)] * partitions, {})
    apply_views(broker)
    yield broker
    broker._close()


def apply_views(broker: Broker) -> None:
    """Make turns until every queued view is applied, with its folders created and renamed."""
    broker._loop._turn()
    while broker._membership._queue or broker._membership._is_in_step:
        broker._loop._turn()


def turn_until(broker: Broker, condition: Callable[[], object]) -> None:
    """Make turns, which do not wait for anything, until the condition holds."""

    def holds() -> bool:
        broker._loop.call_soon(lambda: None)
        broker._loop._turn()
        return bool(condition())

    until(holds, "the condition")
