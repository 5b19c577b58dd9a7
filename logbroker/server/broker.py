"""The broker: every part put together, from the listening socket to the data directory."""

import logging
from typing import Final

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError, RequestRefused, StorageFailed
from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.server.catalog import Catalog
from logbroker.server.dispatcher import (
    RequestDispatcher,
    cold_handlers,
    deferred_handlers,
    group_handlers,
    slow_handlers,
)
from logbroker.server.fetch import FetchHandler
from logbroker.server.file_removal import FileRemoval
from logbroker.server.group_commit import GroupCommit
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.server.handlers.cluster import ClusterHandlers
from logbroker.server.handlers.committed_offsets import CommittedOffsetHandlers
from logbroker.server.handlers.configs import ConfigHandlers
from logbroker.server.handlers.coordinators import CoordinatorHandlers
from logbroker.server.handlers.described_groups import DescribedGroupHandlers
from logbroker.server.handlers.groups import GroupHandlers
from logbroker.server.handlers.log_dirs import LogDirHandlers
from logbroker.server.handlers.offsets import OffsetHandlers
from logbroker.server.handlers.producer_ids import ProducerIdHandlers
from logbroker.server.handlers.records import RecordHandlers
from logbroker.server.handlers.topics import TopicHandlers
from logbroker.server.housekeeping import Housekeeping
from logbroker.server.listener import Listener
from logbroker.server.loop import SocketLoop
from logbroker.server.membership import Membership
from logbroker.server.metrics.counters import Counters
from logbroker.server.metrics.watched import Watched
from logbroker.server.opening import open_data
from logbroker.server.partition import Partition, Partitions
from logbroker.server.produce import ProduceHandler
from logbroker.server.registry_crew import RegistryCrew
from logbroker.server.topic_changes import TopicChanges, TopicCreation
from logbroker.server.workers import Workers

log = logging.getLogger("logbroker.broker")

READ_THREADS: Final = 4
PRODUCE_TIMEOUT_CHECK_S: Final = 0.5


class Broker:
    """One broker over one data directory.

    Made, it has recovered its logs, listens and is a member of its cluster; `run` serves until
    `stop`, then leaves and closes cleanly.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """Open everything.

        Raises:
            DataDirectoryInUse: another broker has the directory.
            ConfigurationError: the directory belongs to another broker or cluster, the address
                is taken, ZooKeeper cannot be reached, or another broker has this one's id.
        """
        self._config = config
        self._loop = SocketLoop()
        self._registry, self._logs, view = open_data(config, self._loop.now_ms)
        try:
            self._listener = Listener(config, self._loop)
            self._build(view)
            self._membership.join(self._endpoint())
        except ConfigurationError:
            self._registry.close()
            self._logs.close()
            raise

    @property
    def port(self) -> int:
        """The port it listens on; the one chosen by the system where the setting is 0."""
        return self._listener.port

    def run(self) -> None:
        """Serve on this thread until `stop`; then leave the cluster and close the logs cleanly.

        Raises:
            StorageFailed: a log could not be closed whole; the next start recovers it.
        """
        self._housekeeping.start()
        self._coordinator.start()
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
        # Prometheus' client loads Python's HTTP server, and most brokers serve no metrics.
        from logbroker.server.metrics.endpoint import serve_metrics

        serve_metrics(self._watched(), host, port)

    def _build(self, view: ClusterView) -> None:
        config, loop = self._config, self._loop
        self._counters = Counters()
        self._partitions = partitions = Partitions(view)
        self._gone: set[Partition] = set()
        self._membership = Membership(self._registry, loop, config.broker_id)
        self._flushers = Workers(loop, "flush", config.flush_threads)
        self._reads = Workers(loop, "read", READ_THREADS)
        self._disk = Workers(loop, "disk", 1)
        self._crew = RegistryCrew(loop)
        self._commit = GroupCommit(
            loop, self._flushers, self._counters, self._flushed, self._flush_failed
        )
        self._produce = ProduceHandler(loop, partitions, self._commit, self._counters)
        self._fetch = FetchHandler(loop, partitions, self._counters)
        files = FileRemoval(loop, self._disk, config.file_delete_delay_s)
        self._catalog = Catalog(
            config, self._logs, partitions, files, self._commit.reconsider, self._closed
        )
        self._coordinator = GroupCoordinator(config, self._registry, loop, self._counters, view)
        # The catalog comes first: whoever follows after it finds the partitions in their new state.
        self._membership.add_follower(self._follow)
        self._membership.add_follower(self._coordinator.follow)
        self._dispatcher = self._build_dispatcher()
        self._listener.start(self._dispatcher, self._reads, self._counters)
        self._housekeeping = Housekeeping(
            config, loop, files, partitions, self._logs, self._disk, self._listener, self._counters
        )

    def _build_dispatcher(self) -> RequestDispatcher:
        config, partitions = self._config, self._partitions
        changes = TopicChanges(config, self._registry)
        creation = TopicCreation(changes, self._crew, partitions)
        cluster = ClusterHandlers(
            partitions,
            creation,
            auto_create=config.auto_create_topics,
            num_partitions=config.num_partitions,
        )
        configs = ConfigHandlers(config, partitions, changes, self._crew)
        topics = TopicHandlers(config, partitions, changes, creation, self._crew)
        producer_ids = ProducerIdHandlers(self._registry, self._crew)
        records, coordinators = RecordHandlers(partitions), CoordinatorHandlers(partitions)
        groups = GroupHandlers(self._coordinator)
        described = DescribedGroupHandlers(self._coordinator)
        committed = CommittedOffsetHandlers(self._coordinator, partitions)
        return RequestDispatcher(
            self._produce,
            self._fetch,
            cold_handlers(cluster, configs, records, coordinators, described),
            slow_handlers(OffsetHandlers(partitions), LogDirHandlers(config.data_dir, partitions)),
            {
                **deferred_handlers(cluster, topics, configs, producer_ids),
                **group_handlers(groups, committed, described),
            },
            self._reads,
            self._loop,
            self._counters,
        )

    def _watched(self) -> Watched:
        return Watched(
            self._config,
            self._counters,
            self._partitions,
            self._coordinator,
            self._registry,
            self._logs,
            self._produce,
            self._commit,
            self._listener,
        )

    def _endpoint(self) -> BrokerEndpoint:
        config = self._config
        return BrokerEndpoint(
            config.broker_id,
            config.advertised_host or config.host,
            config.advertised_port or self.port,
        )

    def _end_turn(self) -> None:
        """Write what the turn gathered, then make room and answer.

        The order matters: a connection's buffer may be reused only once its batches are written.
        """
        self._produce.settle()
        touched = self._dispatcher.touched
        while touched:
            touched.pop().finish_turn()

    def _follow(self, view: ClusterView) -> None:
        # What this turn has appended is written while the log is still this broker's to write.
        self._produce.settle()
        self._catalog.follow(view)
        if self._gone:
            # Templates that still knew them would keep the files of deleted topics open.
            for connection in self._listener:
                connection.produce_decoder.forget(self._gone)
            self._gone.clear()

    def _flushed(self, partition: Partition) -> None:
        self._dispatcher.touched.update(self._produce.flushed(partition))
        self._dispatcher.touched.update(self._fetch.advanced(partition))

    def _flush_failed(self, partition: Partition, failure: StorageFailed) -> None:
        self._dispatcher.touched.update(self._produce.failed(partition, failure))

    def _closed(self, partition: Partition, reason: RequestRefused) -> None:
        """Tell who waits for a partition that is served no longer."""
        self._commit.closed(partition)
        self._gone.add(partition)
        self._dispatcher.touched.update(self._produce.closed(partition, reason))
        self._dispatcher.touched.update(self._fetch.closed(partition))

    def _time_out(self) -> None:
        self._dispatcher.touched.update(self._produce.time_out())

    def _close(self) -> None:
        self._listener.close()
        self._coordinator.close()
        self._crew.close()
        self._membership.leave()
        for crew in (self._flushers, self._reads, self._disk):
            crew.close()
        self._logs.close()
        self._loop.close()
        log.info("stopped broker_id=%d", self._config.broker_id)
