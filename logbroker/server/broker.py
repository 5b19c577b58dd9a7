"""The broker: every part put together, from the listening socket to the data directory."""

import logging
from typing import Final

from prometheus_client import CollectorRegistry, start_http_server

from logbroker.config import BrokerConfig, LogConfig, apply_topic_settings
from logbroker.errors import ConfigurationError, StorageFailed
from logbroker.registry.local import LocalRegistry
from logbroker.server.catalog import Catalog
from logbroker.server.dispatcher import RequestDispatcher, cold_handlers, slow_handlers
from logbroker.server.fetch import FetchHandler
from logbroker.server.group_commit import GroupCommit
from logbroker.server.handlers.cluster import BrokerAddress, ClusterHandlers
from logbroker.server.handlers.configs import ConfigHandlers
from logbroker.server.handlers.log_dirs import LogDirHandlers
from logbroker.server.handlers.offsets import OffsetHandlers
from logbroker.server.handlers.producer_ids import ProducerIdHandlers
from logbroker.server.handlers.topics import TopicHandlers
from logbroker.server.housekeeping import Housekeeping
from logbroker.server.listener import Listener
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics import BrokerCollector, Counters
from logbroker.server.partition import Partition, Partitions
from logbroker.server.produce import ProduceHandler
from logbroker.server.workers import Workers
from logbroker.storage.log_directory import LogDirectory

log = logging.getLogger("logbroker.broker")

REGISTRY_FILE: Final = "registry.json"
READ_THREADS: Final = 4
PRODUCE_TIMEOUT_CHECK_S: Final = 0.5


class Broker:
    """One broker over one data directory.

    Made, it has recovered its logs and listens; `run` serves until `stop`, then closes cleanly.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """Open everything.

        Raises:
            DataDirectoryInUse: another broker has the directory.
            ConfigurationError: the directory belongs to another broker, or the address is taken.
        """
        self._config = config
        self._loop = SocketLoop()
        self._registry, self._logs = _open_data(config, self._loop.now_ms)
        self._listener = Listener(config, self._loop)
        self._counters = Counters()
        self._partitions = Partitions()
        self._flushers = Workers(self._loop, "flush", config.flush_threads)
        self._reads = Workers(self._loop, "read", READ_THREADS)
        self._disk = Workers(self._loop, "disk", 1)
        self._build()

    @property
    def port(self) -> int:
        """The port it listens on; the one chosen by the system where the setting is 0."""
        return self._listener.port

    def run(self) -> None:
        """Serve on this thread until `stop`; then close the logs cleanly.

        Raises:
            StorageFailed: a log could not be closed whole; the next start recovers it.
        """
        self._housekeeping.start()
        self._loop.call_every(PRODUCE_TIMEOUT_CHECK_S, self._time_out)
        # After an error of ours nothing is closed, so that the next start recovers every log.
        self._loop.run(self._end_turn)
        self._close()

    def stop(self) -> None:
        """End `run`; any thread may ask, and a signal handler."""
        self._loop.call_soon(self._loop.stop)

    def serve_metrics(self, host: str, port: int) -> None:
        """Serve Prometheus metrics over HTTP on a thread of its own.

        Raises:
            ConfigurationError: the address cannot be bound.
        """
        registry = CollectorRegistry()
        registry.register(BrokerCollector(self._counters, self._partitions))
        try:
            start_http_server(port, host, registry)
        except OSError as error:
            raise ConfigurationError(f"metrics cannot listen on {host}:{port}: {error}") from error

    def _build(self) -> None:
        config, loop, partitions = self._config, self._loop, self._partitions
        self._catalog = Catalog(config, self._registry, self._logs, partitions, loop, self._disk)
        self._catalog.open_all()
        self._commit = GroupCommit(
            loop, self._flushers, self._counters, self._flushed, self._flush_failed
        )
        self._produce = ProduceHandler(loop, partitions, self._commit, self._counters)
        self._fetch = FetchHandler(loop, self._registry, partitions, self._counters)
        address = BrokerAddress(config.broker_id, config.advertised_host or config.host, self.port)
        self._dispatcher = RequestDispatcher(
            self._produce,
            self._fetch,
            cold_handlers(
                ClusterHandlers(
                    self._catalog,
                    address,
                    auto_create=config.auto_create_topics,
                    num_partitions=config.num_partitions,
                ),
                TopicHandlers(
                    self._catalog,
                    partitions,
                    config.broker_id,
                    config.num_partitions,
                    self._deleted,
                ),
                ConfigHandlers(self._catalog, config, self._configured),
                ProducerIdHandlers(self._registry),
            ),
            slow_handlers(OffsetHandlers(partitions), LogDirHandlers(config.data_dir, partitions)),
            self._reads,
            self._counters,
        )
        self._listener.start(self._dispatcher, self._reads, self._counters)
        self._housekeeping = Housekeeping(
            config, loop, self._catalog, partitions, self._logs, self._disk, self._listener
        )

    def _end_turn(self) -> None:
        """Write what the turn gathered, then make room and answer.

        The order matters: a connection's buffer may be reused only once its batches are written.
        """
        self._produce.settle()
        touched = self._dispatcher.touched
        while touched:
            touched.pop().finish_turn()

    def _flushed(self, partition: Partition) -> None:
        self._dispatcher.touched.update(self._produce.flushed(partition))
        self._dispatcher.touched.update(self._fetch.advanced(partition))

    def _flush_failed(self, partition: Partition, failure: StorageFailed) -> None:
        self._dispatcher.touched.update(self._produce.failed(partition, failure))

    def _deleted(self, partition: Partition) -> None:
        """Tell who waits for it, and let go of it, or its files would keep their space."""
        self._commit.closed(partition)
        self._dispatcher.touched.update(self._produce.closed(partition))
        self._dispatcher.touched.update(self._fetch.closed(partition))
        for connection in self._listener:
            connection.produce_decoder.forget(partition)

    def _configured(self, topic: str) -> None:
        for partition in self._partitions.of_topic(topic):
            self._commit.reconsider(partition)

    def _time_out(self) -> None:
        self._dispatcher.touched.update(self._produce.time_out())

    def _close(self) -> None:
        self._listener.close()
        for crew in (self._flushers, self._reads, self._disk):
            crew.close()
        self._logs.close()
        self._loop.close()
        log.info("stopped broker_id=%d", self._config.broker_id)


def _open_data(config: BrokerConfig, now_ms: int) -> tuple[LocalRegistry, LogDirectory]:
    """Open the registry, then the logs by the settings that it holds; the logs' lock is taken."""
    try:
        config.data_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"data_dir {config.data_dir} cannot be made: {error}") from error
    registry = LocalRegistry.open(config.data_dir / REGISTRY_FILE, config.broker_id)

    def config_for(topic: str) -> LogConfig:
        known = registry.topics.get(topic)
        return apply_topic_settings(config.topic_defaults, known.settings if known else {})

    try:
        return registry, LogDirectory.open(config.data_dir, config_for, now_ms)
    except OSError as error:
        raise StorageFailed(f"data_dir {config.data_dir} cannot be opened: {error}") from error
