"""The paper's consumer: message streams whose partitions a group shares through ZooKeeper."""

from collections.abc import Mapping
from typing import Final, Self, Unpack

from logbroker.client.errors import ClientClosed, StreamsExist
from logbroker.consumer.coordinator import Coordinator, Offsets
from logbroker.consumer.fetching import Fetcher
from logbroker.consumer.received_reports import ConsumerReports, StreamCounter
from logbroker.consumer.registries import watch_brokers
from logbroker.consumer.settings import STREAMS_MAX, ConsumerOptions, ConsumerSettings
from logbroker.consumer.stream import MessageStream
from logbroker.consumer.topic_partitions import PartitionLookup, PartitionPoller
from logbroker.errors import ConfigurationError, InvalidTopic
from logbroker.registry.topic import check_topic_name
from logbroker.registry.zookeeper.client_settings import read_zookeeper_config
from logbroker.registry.zookeeper.lease import LeaseKeeper, boot_clock_s
from logbroker.registry.zookeeper.session import ZooKeeperSession

COMMIT_S: Final = 30.0
"""How long an explicit commit waits, which may happen during a rebalance."""


class ConsumerConnector:
    """One consumer of a group of the paper; a context manager that shuts down at its end.

    - `zookeeper`: `HOST:PORT[,HOST:PORT...][/PATH]`, where the group's registries are kept.

    The options are keyword arguments:

    - `auto_offset_reset`: `smallest` or `largest`, the default: the start offset in a partition
      without a valid committed offset.
    - `auto_commit_interval_s`: time between two commits, default 5; None disables them.
    - `session_timeout_s`: how long ZooKeeper waits for a silent consumer before its partitions are
      free, default 6; ZooKeeper may grant another time.
    - `rebalance_backoff_s`: the mean time before a refused claim is retried, if nothing changes
      earlier, default 1.
    - `partition_poll_s`: time between two lookups of new partitions, default 10.
    - `client_settings`: for librdkafka, such as `security.protocol`.
    - `audit_tier`: the tier of this consumer in the audit. Messages are counted as they are
      returned, and offsets are committed once the report is acknowledged. None, the default,
      disables the audit.
    - `zookeeper_config`: a file of properties for authentication and TLS at ZooKeeper.
    """

    def __init__(
        self,
        zookeeper: str,
        group_id: str,
        bootstrap_servers: str,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Connect to ZooKeeper.

        Raises:
            ConfigurationError: a setting is invalid, or no server answers at ZooKeeper's address.
        """
        self._settings = ConsumerSettings(zookeeper, group_id, bootstrap_servers, **options)
        self._consumption: _RunningConsumer | None = None
        self._is_shut_down = False
        self._session = ZooKeeperSession(
            zookeeper,
            self._settings.session_timeout_s,
            read_zookeeper_config(self._settings.zookeeper_config),
        )
        self._session.connect()

    def __enter__(self) -> Self:
        """Return the connector."""
        return self

    def __exit__(self, *_: object) -> None:
        """Shut down."""
        self.shutdown()

    def create_message_streams(self, streams: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Create streams of each topic, and join the group.

        Returns after the first attempt to claim partitions. A topic that does not exist yet is read
        once it is created.

        Raises:
            ConfigurationError: a topic name, a number of streams or one of `client_settings` is
                invalid.
            BrokersUnavailable: no broker answers.
            StreamsExist: the streams were created before.
            ClientClosed: the connector is shut down.
        """
        ConfigurationError.raise_if_any(_problems(streams))
        if self._is_shut_down:
            raise ClientClosed("the connector is shut down")
        if self._consumption is not None:
            raise StreamsExist("a connector creates its streams once")
        consumption = _RunningConsumer(self._settings, self._session, streams)
        consumption.start()
        self._consumption = consumption
        return consumption.streams

    def commit_offsets(self) -> Offsets:
        """Commit the consumed positions, and return the committed offsets of the owned partitions.

        The last message of the calling thread counts as processed. The last message of another
        thread counts once that thread requests the next one. Positions of partitions that were
        released in the meantime are not committed; their new owner reads those messages again.

        Raises:
            RegistryUnavailable: ZooKeeper does not answer; the offsets may be stored or not.
            BrokersUnavailable: with an `audit_tier`, the report was not acknowledged.
            ClientClosed: the connector is shut down, or failed.
        """
        if self._consumption is None or self._is_shut_down:
            raise ClientClosed("the connector has no streams")
        return self._consumption.coordinator.commit(COMMIT_S)

    def shutdown(self) -> None:
        """End the streams, commit (unless disabled), and leave the group; idempotent.

        The last message of each thread is read again, unless `commit_offsets` was called for it. Do
        not call this in a signal handler: raise an exception there, and shut down where it is
        caught.
        """
        if self._is_shut_down:
            return
        self._is_shut_down = True
        if self._consumption is not None:
            self._consumption.stop()
        self._session.close()


class _RunningConsumer:
    """The streams of a connector, and the threads that serve them."""

    def __init__(
        self, settings: ConsumerSettings, session: ZooKeeperSession, streams: Mapping[str, int]
    ) -> None:
        topics = list(streams)
        self._settings = settings
        self.streams = {
            topic: [self._stream(topic) for _ in range(count)] for topic, count in streams.items()
        }
        self._session = session
        self._lookup = PartitionLookup(settings.librdkafka, topics)
        self._reports = self._make_reports()
        self.coordinator = Coordinator(settings, session, self._lookup, self.streams, self._reports)
        self._keeper = LeaseKeeper(session, lambda: self.coordinator.lease, self.coordinator.fail)
        self._poll = PartitionPoller(
            self._lookup,
            settings.partition_poll_s,
            lambda changed: watch_brokers(session, topics, changed),
            self.coordinator.partitions_changed,
            self.coordinator.fail,
        )

    def start(self) -> None:
        """Claim partitions.

        Raises:
            BrokersUnavailable: no broker answers; then no thread was started.
        """
        try:
            partitions = self._lookup.partitions()
        except BaseException:
            self._lookup.close()
            for stream in self._all_streams():
                stream.end()
            raise
        self._session.add_listener(self._connection_changed)
        self._keeper.start()
        self.coordinator.start(partitions)
        self._poll.start(partitions)

    def stop(self) -> None:
        """End the streams and the threads."""
        self.coordinator.leave()
        self._keeper.stop()
        self._poll.stop()

    def _stream(self, topic: str) -> MessageStream:
        tier = self._settings.audit_tier
        counter = None
        if tier is not None:
            counter = StreamCounter(tier, self._report_soon)
        return MessageStream(topic, Fetcher(self._settings.librdkafka), boot_clock_s, counter)

    def _all_streams(self) -> list[MessageStream]:
        return [stream for streams in self.streams.values() for stream in streams]

    def _make_reports(self) -> ConsumerReports | None:
        if self._settings.audit_tier is None:
            return None
        return ConsumerReports(
            self._settings.bootstrap_servers,
            self._settings.client_settings or {},
            lambda: [record for each in self._all_streams() for record in each.take_reports()],
        )

    def _report_soon(self) -> None:
        self.coordinator.report_soon()

    def _connection_changed(self) -> None:
        self.coordinator.connection_changed()
        self._keeper.renew_soon()


def _problems(streams: Mapping[str, int]) -> list[str]:
    problems = [] if streams else ["no topic is named"]
    for topic, count in streams.items():
        try:
            check_topic_name(topic)
        except InvalidTopic as error:
            problems.append(str(error))
        if not 1 <= count <= STREAMS_MAX:
            problems.append(f"{topic!r} has {count} streams; allowed: 1 to {STREAMS_MAX}")
    return problems
