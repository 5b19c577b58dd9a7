"""A broker whose turns the test makes itself."""

from logbroker.server.broker import Broker


def apply_views(broker: Broker) -> None:
    """Make turns until every queued view is applied, with its folders created and renamed."""
    broker._loop._turn()
    while broker._membership._queue or broker._membership._is_in_step:
        broker._loop._turn()
