"""The broker: connects the listening socket, the handlers, the logs and the registry."""

import gc
import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError, RequestRefused, StorageFailed
from logbroker.quotas.meters import QuotaMeters
from logbroker.records import validator
from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.security.authorizer import Authorizer
from logbroker.security.principal import Principal
from logbroker.server.authorization.access import Access
from logbroker.server.authorization.cluster_guards import Guards
from logbroker.server.authorization.view_guards import ViewGuards
from logbroker.server.connection import Connection
from logbroker.server.dispatcher import (
    AsyncHandler,
    Handler,
    Preparation,
    RequestDispatcher,
    RequestHandlers,
)
from logbroker.server.fetch import FetchHandler
from logbroker.server.group_commit import GroupCommit
from logbroker.server.groups.coordinator import GroupCoordinator
from logbroker.server.handlers.acls import AclHandlers
from logbroker.server.handlers.cluster import ClusterHandlers
from logbroker.server.handlers.committed_offsets import CommittedOffsetHandlers
from logbroker.server.handlers.configs import ConfigHandlers
from logbroker.server.handlers.group_admin import GroupAdminHandlers
from logbroker.server.handlers.groups import GroupHandlers
from logbroker.server.handlers.logs import LogHandlers
from logbroker.server.handlers.producer_ids import ProducerIdHandlers
from logbroker.server.handlers.quotas import QuotaHandlers
from logbroker.server.handlers.topics import TopicHandlers
from logbroker.server.handlers.users import UserHandlers
from logbroker.server.housekeeping import FileDeletion, Housekeeping
from logbroker.server.leadership import PARTITIONS_PER_TURN, PartitionLeadership
from logbroker.server.listener import Listener
from logbroker.server.log_cleaner import LogCleaner
from logbroker.server.loop import SocketLoop
from logbroker.server.membership import Membership, Step
from logbroker.server.metrics.counters import Counters
from logbroker.server.metrics.sources import MetricSources
from logbroker.server.opening import open_data
from logbroker.server.partition import Partition, Partitions
from logbroker.server.produce import ProduceHandler
from logbroker.server.registry_thread import RegistryThread
from logbroker.server.sasl import refuse_authenticate, refuse_handshake
from logbroker.server.topic_changes import TopicChanges, TopicCreation
from logbroker.server.worker_pool import WorkerPool
from logbroker.wire.apis import ApiKey

if TYPE_CHECKING:
    from logbroker.metrics_http import MetricsAccess

log = logging.getLogger("logbroker.broker")

READ_THREADS: Final = 4
TIME_LIMIT_CHECK_S: Final = 0.5

YOUNG_GENERATION: Final = 1
COLLECTION_THRESHOLDS: Final = (700, 10, 100)
"""Those of Python, except that a collection of all objects is ten times rarer.

So none happens while one view adds thousands of partitions.
"""


class Broker:
    """One broker with one data directory.

    The constructor recovers the logs, listens and registers in the cluster. `run` serves until
    `stop`, then deregisters and closes the logs.
    """

    def __init__(self, config: BrokerConfig) -> None:
        """Open the data directory, the registry and the listening socket.

        Raises:
            DataDirectoryInUse: another broker uses the directory.
            ConfigurationError: the directory belongs to another broker or cluster, the address
                is in use, ZooKeeper cannot be reached, or another broker has the same id.
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
        """The port of the first listener; chosen by the system if the setting is 0."""
        return self._listener.port

    def run(self) -> None:
        """Serve on this thread until `stop`, then deregister and close the logs.

        Raises:
            StorageFailed: a log could not be closed; the next start recovers it.
        """
        if not validator.IS_COMPILED:
            log.info("record validation is not compiled: see docs/broker.md, section Compiling")
        self._housekeeping.start()
        self._cleaner.start()
        self._coordinator.start()
        self._schedule_reopening()
        # After an unexpected error nothing is closed, so that the next start recovers every log.
        self._loop.run(self._end_turn)
        self._close()

    def collect_rarely(self) -> None:
        """Exclude the objects that exist now, and after each view, from garbage collection.

        For a process that runs nothing else. With 5,000 partitions, a collection of all objects
        held the loop for 113 ms.
        """
        gc.set_threshold(*COLLECTION_THRESHOLDS)
        _exclude_from_collection()
        self._membership.add_listener(lambda _view: _exclude_from_collection())

    def reload_certificates(self) -> None:
        """Load the certificate files again; safe on any thread and in signal handlers."""
        self._loop.call_soon(self._listener.reload_certificates)

    def stop(self) -> None:
        """End `run`; safe on any thread and in signal handlers."""
        self._loop.call_soon(self._loop.stop)

    def serve_metrics(self, host: str, port: int, access: "MetricsAccess") -> None:
        """Serve Prometheus metrics over HTTP on another thread.

        Raises:
            ConfigurationError: the address cannot be bound.
        """
        # Prometheus' client loads Python's HTTP server, and most brokers serve no metrics.
        from logbroker.server.metrics.collector import serve_metrics

        serve_metrics(self._metric_sources(), host, port, access)

    def _metric_sources(self) -> MetricSources:
        return MetricSources(
            self._config,
            self._counters,
            self._partitions,
            self._coordinator,
            self._registry,
            self._logs,
            self._produce,
            self._commit,
            self._listener,
            self._meters.counts,
        )

    def _build(self, view: ClusterView) -> None:
        config, loop = self._config, self._loop
        self._is_check_due = False
        """Whether a check of time limits is scheduled."""
        self._counters = Counters()
        self._partitions = partitions = Partitions(view)
        self._closed_partitions: set[Partition] = set()
        self._flush_pool = WorkerPool(loop, "flush", config.flush_threads)
        self._read_pool = WorkerPool(loop, "read", READ_THREADS)
        self._disk_pool = WorkerPool(loop, "disk", 1)
        self._folder_pool = WorkerPool(loop, "folders", 1)
        self._commit = GroupCommit(
            loop, self._flush_pool, self._counters, self._handle_flush, self._handle_failed_flush
        )
        self._access = Access(_authorizer(config))
        self._meters = QuotaMeters()
        self._validation_pool = WorkerPool(loop, "validation", 1)
        self._produce = ProduceHandler(
            loop,
            partitions,
            self._access,
            self._commit,
            self._counters,
            self._validation_pool,
            self._handle_resumed_request,
        )
        self._fetch = FetchHandler(loop, partitions, self._access, self._counters, self._read_pool)
        files = FileDeletion(loop, self._disk_pool)
        self._leadership = PartitionLeadership(
            config,
            self._logs,
            partitions,
            files,
            self._commit.reschedule_flush,
            self._handle_closed_partition,
        )
        self._membership = Membership(
            self._registry,
            loop,
            config.broker_id,
            self._apply_view,
            self._folder_pool,
        )
        self._registry_thread = RegistryThread(loop, self._membership.call_after_views)
        self._coordinator = GroupCoordinator(config, self._registry, loop, self._counters, view)
        self._membership.add_listener(self._coordinator.apply_view)
        self._dispatcher = self._build_dispatcher()
        self._listener.start(
            self._dispatcher,
            self._read_pool,
            self._counters,
            lambda: partitions.view.users,
            self._meters,
        )
        self._cleaner = LogCleaner(config, loop, files, partitions, self._logs, self._counters)
        self._housekeeping = Housekeeping(
            config,
            loop,
            files,
            partitions,
            self._logs,
            self._disk_pool,
            self._listener,
            self._counters,
        )

    def _build_dispatcher(self) -> RequestDispatcher:
        config, partitions, thread = self._config, self._partitions, self._registry_thread
        changes = TopicChanges(config, self._registry)
        creation = TopicCreation(changes, thread, partitions)
        cluster = ClusterHandlers(
            partitions,
            creation,
            auto_create=config.auto_create_topics,
            num_partitions=config.num_partitions,
        )
        configs = ConfigHandlers(config, partitions, changes, thread)
        topics = TopicHandlers(config, partitions, changes, creation, thread)
        logs = LogHandlers(config.data_dir, partitions, self._loop)
        groups = GroupHandlers(self._coordinator)
        group_admin = GroupAdminHandlers(self._coordinator)
        offsets = CommittedOffsetHandlers(self._coordinator, partitions, lambda: self._loop.now_ms)
        acls = AclHandlers(partitions, self._registry, thread, is_enabled=config.authorizer)
        users = UserHandlers(partitions, self._registry, thread)
        quotas = QuotaHandlers(partitions, self._registry, thread)
        by_view = ViewGuards(lambda: partitions.view, auto_create=config.auto_create_topics)
        handlers: dict[ApiKey, Handler] = {
            ApiKey.LIST_GROUPS: group_admin.list_groups,
            ApiKey.DESCRIBE_GROUPS: group_admin.describe_groups,
            ApiKey.SASL_HANDSHAKE: refuse_handshake,
            ApiKey.SASL_AUTHENTICATE: refuse_authenticate,
        }
        blocking: dict[ApiKey, Handler] = {
            ApiKey.LIST_OFFSETS: logs.list_offsets,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: logs.offset_for_leader_epoch,
            ApiKey.DESCRIBE_LOG_DIRS: logs.describe_log_dirs,
            ApiKey.DESCRIBE_CONFIGS: configs.describe,
            ApiKey.DESCRIBE_ACLS: acls.describe,
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: users.describe,
            ApiKey.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
        }
        async_handlers: dict[ApiKey, AsyncHandler] = {
            ApiKey.METADATA: cluster.metadata,
            ApiKey.DESCRIBE_CLUSTER: cluster.describe_cluster,
            ApiKey.FIND_COORDINATOR: cluster.find_coordinator,
            ApiKey.CREATE_TOPICS: topics.create_topics,
            ApiKey.DELETE_TOPICS: topics.delete_topics,
            ApiKey.CREATE_PARTITIONS: topics.create_partitions,
            ApiKey.ALTER_CONFIGS: configs.alter,
            ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_incrementally,
            ApiKey.DELETE_RECORDS: logs.delete_records,
            ApiKey.INIT_PRODUCER_ID: ProducerIdHandlers(self._registry, thread).init_producer_id,
            ApiKey.JOIN_GROUP: groups.join_group,
            ApiKey.SYNC_GROUP: groups.sync_group,
            ApiKey.HEARTBEAT: groups.heartbeat,
            ApiKey.LEAVE_GROUP: groups.leave_group,
            ApiKey.OFFSET_COMMIT: offsets.offset_commit,
            ApiKey.OFFSET_FETCH: offsets.offset_fetch,
            ApiKey.OFFSET_DELETE: offsets.offset_delete,
            ApiKey.DELETE_GROUPS: group_admin.delete_groups,
            ApiKey.CREATE_ACLS: acls.create,
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users.alter,
            ApiKey.ALTER_CLIENT_QUOTAS: quotas.alter,
            ApiKey.DELETE_ACLS: acls.delete,
        }
        preparations: dict[ApiKey, Preparation] = {ApiKey.OFFSET_COMMIT: offsets.check_commit}
        return RequestDispatcher(
            self._produce,
            self._fetch,
            RequestHandlers(handlers, blocking, async_handlers, preparations),
            Guards(self._access, by_view),
            self._meters,
            self._read_pool,
            self._loop,
            self._counters,
        )

    def _endpoint(self) -> BrokerEndpoint:
        return BrokerEndpoint.of(self._config.broker_id, self._listener.addresses)

    def _end_turn(self) -> None:
        """Write the staged batches, then compact receive buffers and send responses.

        The order matters: a receive buffer may be reused only after its batches are written.
        """
        self._produce.end_turn()
        touched = self._dispatcher.touched
        while touched:
            touched.pop().finish_turn()
        if self._listener.memory.is_short:
            self._listener.memory.resume_waiting()
        if not self._is_check_due:
            self._check_time_limits_later()

    def _apply_view(self, view: ClusterView) -> Step:
        # Batches of this turn are written while this broker still leads their partitions.
        self._produce.end_turn()
        for work in self._leadership.apply_view(view):
            yield work
            self._produce.end_turn()
        if self._access.use(view.acls):
            for connection in self._listener:
                connection.forget_permissions()
        if self._meters.use(view.quotas):
            for connection in self._listener:
                connection.forget_quotas()
        if self._closed_partitions:
            # Templates that reference them would keep files of deleted topics open.
            for connection in self._listener:
                connection.produce_decoder.forget_partitions(self._closed_partitions)
            for count in range(1, len(self._closed_partitions) + 1):
                self._closed_partitions.pop()  # closes its files
                if count % PARTITIONS_PER_TURN == 0:
                    yield None

    def _schedule_reopening(self) -> None:
        self._loop.call_at(self._loop.now_s + self._config.log_retry_s, self._reopen_failed)

    def _reopen_failed(self) -> None:
        """Try to open the logs that could not be opened, or reject appends since they failed."""
        self._reopen_next(iter(self._partitions.failed))

    def _reopen_next(self, keys: Iterator[tuple[str, int]]) -> None:
        """Try to open the next log; views that arrive meanwhile are applied before the others."""
        key = next(keys, None)
        if key is None:
            self._schedule_reopening()
            return
        self._membership.run_between_views(partial(self._reopen, *key))
        self._membership.call_after_views(lambda: self._reopen_next(keys))

    def _reopen(self, topic: str, number: int) -> Step:
        # Batches of this turn are written before the log is closed.
        self._produce.end_turn()
        yield from self._leadership.reopen(topic, number, self._loop.now_ms)

    def _handle_flush(self, partition: Partition) -> None:
        self._dispatcher.touched.update(self._produce.complete_flushed(partition))
        self._dispatcher.touched.update(self._fetch.complete_fetches(partition))

    def _handle_failed_flush(self, partition: Partition, failure: StorageFailed) -> None:
        self._dispatcher.touched.update(self._produce.fail_unflushed(partition, failure))

    def _handle_resumed_request(self, connection: Connection) -> None:
        self._dispatcher.touched.add(connection)

    def _handle_closed_partition(self, partition: Partition, reason: RequestRefused) -> None:
        self._commit.remove_partition(partition)
        self._closed_partitions.add(partition)
        self._dispatcher.touched.update(self._produce.close_partition(partition, reason))
        self._dispatcher.touched.update(self._fetch.close_partition(partition))

    def _check_time_limits_later(self) -> None:
        """Check them soon if a request waits for a flush, or a connection for request memory."""
        if not self._produce.purgatory.is_empty or self._listener.memory.is_short:
            self._is_check_due = True
            self._loop.call_at(self._loop.now_s + TIME_LIMIT_CHECK_S, self._check_time_limits)

    def _check_time_limits(self) -> None:
        self._is_check_due = False
        self._dispatcher.touched.update(self._produce.expire())
        self._listener.close_stalled()

    def _close(self) -> None:
        self._listener.close()
        self._coordinator.close()
        self._registry_thread.close()
        self._membership.leave()
        self._cleaner.close()
        for pool in (
            self._flush_pool,
            self._read_pool,
            self._validation_pool,
            self._disk_pool,
            self._folder_pool,
        ):
            pool.close()
        self._logs.close()
        self._loop.close()
        log.info("stopped broker_id=%d", self._config.broker_id)


def _exclude_from_collection() -> None:
    # Garbage among the newest objects would stay forever.
    gc.collect(YOUNG_GENERATION)
    gc.freeze()


def _authorizer(config: BrokerConfig) -> Authorizer | None:
    """Return the authorizer of the settings, if it is on.

    Raises:
        ConfigurationError: a super user is not a principal.
    """
    try:
        users = [Principal.parse(each) for each in config.super_users.split(";") if each]
    except ValueError as error:
        raise ConfigurationError(f"super_users is {config.super_users!r}: {error}") from None
    if not config.authorizer:
        return None
    return Authorizer(users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)
