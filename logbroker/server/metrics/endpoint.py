"""Where Prometheus asks: HTTP on threads beside the loop's."""

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

from logbroker.errors import ConfigurationError
from logbroker.server.metrics.collector import BrokerCollector
from logbroker.server.metrics.watched import Watched


def serve_metrics(watched: Watched, host: str, port: int) -> None:
    """Show a broker's metrics, and its process's memory, descriptors and CPU time.

    Raises:
        ConfigurationError: the address cannot be bound.
    """
    registry = CollectorRegistry()
    registry.register(BrokerCollector(watched))
    ProcessCollector(registry=registry)
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise ConfigurationError(f"metrics cannot listen on {host}:{port}: {error}") from error
