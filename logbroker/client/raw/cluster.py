"""A Kafka cluster for readers of raw batches: its topics, offsets and leaders."""

import random
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Self

from kafka.protocol.metadata import MetadataRequest

from logbroker.client.errors import UnknownTopic
from logbroker.client.raw.connection import ConnectionPool
from logbroker.client.raw.parsing.errors import AttemptFailed, ConnectionFailed, error_for_code
from logbroker.client.raw.parsing.metadata import (
    BrokerAddress,
    ClusterMetadata,
    Leader,
    TopicDescription,
    TopicMetadata,
    TopicPartition,
    WantedOffset,
    make_list_offsets_request,
    parse_list_offsets,
    parse_metadata,
)
from logbroker.client.raw.retries import RetryTimer, retry
from logbroker.client.raw.settings import read_settings
from logbroker.wire.error_codes import NONE

TIMEOUT_S: Final = 60.0

METADATA_BROKERS_MAX: Final = 3
"""How many brokers are queried for a topic that the first ones do not know."""

_Topic: Final = MetadataRequest.MetadataRequestTopic


class RawCluster:
    """Requests to the brokers of a cluster; a context manager.

    Properties have librdkafka's or Java's names. Only one thread at a time may use it and its
    readers. Retriable failures are retried for `timeout_s` seconds.

    Raises:
        ConfigurationError: properties are missing, invalid, or unsafe to ignore.
    """

    def __init__(self, properties: Mapping[str, str], *, timeout_s: float = TIMEOUT_S) -> None:
        self.settings = read_settings(properties)
        self._timeout_s = timeout_s
        self.connections = ConnectionPool(
            self.settings, min(self.settings.request_timeout_s, timeout_s)
        )
        self._brokers: tuple[BrokerAddress, ...] = ()
        self._views: dict[str, TopicMetadata] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection, including those of readers."""
        self.connections.close()

    def topics(self, names: Collection[str] | None) -> dict[str, TopicDescription]:
        """Return the named topics, or all visible ones; creates no topic.

        Raises:
            UnknownTopic: a topic does not exist.
            NotAuthorized: the user lacks permission for a topic, or is rejected.
            BrokersUnavailable: no broker answered in time.
        """
        if names is not None and not names:
            return {}
        views = retry(self.start_timer("asking for topics"), lambda: self._fetch_metadata(names))
        return {topic: view.plan for topic, view in views.items()}

    def offsets(
        self, at: Mapping[TopicPartition, int], *, read_committed: bool | None = None
    ) -> dict[TopicPartition, int | None]:
        """Return for each partition the first offset whose record has that time or a later one.

        Times are milliseconds since 1970, or EARLIEST or LATEST: the log start offset, and the
        offset of the next record (with `read_committed`, of the first undecided one). None means
        that no record is that late. Results are exact, even within compressed batches.
        `read_committed` defaults to the property `isolation.level`.

        Raises:
            UnknownTopic: a topic or a partition does not exist.
            NotAuthorized: the user may not read a topic, or is rejected.
            BrokersUnavailable: a leader did not answer in time.
        """
        is_committed = self.is_committed(read_committed)
        found: dict[TopicPartition, int | None] = {}

        def attempt() -> None:
            left = {tp: time for tp, time in at.items() if tp not in found}
            self._request_offsets(left, is_committed, found)

        retry(self.start_timer("asking for offsets"), attempt)
        return found

    @property
    def fetch_wait_ms(self) -> int:
        """How long a broker may wait for records: at most half of the request timeout."""
        return min(self.settings.fetch_wait_ms, round(self.connections.wait_s * 500))

    def throttle_s(self, throttle_ms: int) -> float:
        """Return how long to pause for a throttling broker, at most the timeout."""
        return min(max(throttle_ms, 0) / 1000, self._timeout_s)

    def is_committed(self, read_committed: bool | None) -> bool:
        """Return `read_committed`, or the configured isolation level if it is None."""
        return self.settings.is_read_committed if read_committed is None else read_committed

    def start_timer(self, what: str) -> RetryTimer:
        """Start the timeout of one operation."""
        return RetryTimer(what, self._timeout_s, self.settings.retry_backoff_s)

    def leader(self, tp: TopicPartition) -> tuple[TopicDescription, Leader]:
        """Return the topic of a partition, and the partition's leader, from cached metadata.

        Raises:
            UnknownTopic: the topic or the partition does not exist.
            AttemptFailed: the partition has no leader, or no broker answered.
        """
        view = self._views.get(tp.topic) or self._fetch_metadata([tp.topic])[tp.topic]
        if tp.partition not in view.plan.partitions:
            self.invalidate(tp.topic)
            raise UnknownTopic(f"topic {tp.topic!r} has no partition {tp.partition}")
        if tp.partition not in view.leaders:
            self.invalidate(tp.topic)
            raise AttemptFailed(f"{tp} has no leader")
        return view.plan, view.leaders[tp.partition]

    def fetch_leaders(
        self, topic_partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Leader]:
        """Return the leaders of partitions from fresh metadata, for those that have one.

        Raises:
            UnknownTopic: a topic does not exist.
            AttemptFailed: no broker answered.
        """
        views = self._fetch_metadata({tp.topic for tp in topic_partitions})
        return {
            tp: views[tp.topic].leaders[tp.partition]
            for tp in topic_partitions
            if tp.partition in views[tp.topic].leaders
        }

    def invalidate(self, topic: str) -> None:
        """Drop the cached metadata of a topic."""
        self._views.pop(topic, None)

    def request(self, address: BrokerAddress, message: Any) -> Any:
        """Send one of kafka-python's requests to a broker, and return the response."""
        connection = self.connections.acquire(address)
        try:
            answer = connection.request(message)
        except BaseException:
            self.connections.discard(connection)
            raise
        self.connections.release(connection)
        return answer

    def request_any(self, message: Any) -> Any:
        """Send one of kafka-python's requests to the first broker that answers.

        Raises:
            AttemptFailed: no broker answered.
        """
        failure = ConnectionFailed("no broker is known")
        for address in self._candidates():
            try:
                return self.request(address, message)
            except ConnectionFailed as each:
                failure = each
        raise failure

    def _fetch_metadata(self, names: Collection[str] | None) -> Mapping[str, TopicMetadata]:
        """Return fresh metadata of topics, all of which exist and are readable."""
        wanted = None if names is None else [_Topic(name=name) for name in sorted(set(names))]
        message = MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        view = self._request_metadata(message)
        self._brokers = view.brokers
        unknown = view.unknown
        if names is not None and unknown:
            raise UnknownTopic(f"unknown topic {min(unknown)!r}")
        topics = {name: each for name, each in view.topics.items() if name not in unknown}
        for topic, found in topics.items():
            if found.error_code != NONE:
                raise error_for_code(f"topic {topic!r}", found.error_code)
        self._views.update(topics)
        return topics

    def _request_metadata(self, message: Any) -> ClusterMetadata:
        """Return metadata of a broker; an unknown topic must be unknown to several.

        Brokers of a Kafka with ZooKeeper know no topic until their controller has sent the
        metadata.
        """
        failure = ConnectionFailed("no broker is known")
        views: list[ClusterMetadata] = []
        for address in self._candidates():
            try:
                views.append(parse_metadata(self.request(address, message)))
            except ConnectionFailed as each:
                failure = each
                continue
            if not views[-1].unknown or len(views) == METADATA_BROKERS_MAX:
                break
        if not views:
            raise failure
        return min(views, key=lambda view: len(view.unknown))

    def _candidates(self) -> list[BrokerAddress]:
        """Return brokers to query: connected ones first, bootstrap servers last."""
        known = random.sample(self._brokers, len(self._brokers))
        bootstrap = random.sample(self.settings.bootstrap, len(self.settings.bootstrap))
        known.sort(key=lambda address: not self.connections.has_idle(address))
        return list(dict.fromkeys([*known, *bootstrap]))

    def _request_offsets(
        self,
        at: Mapping[TopicPartition, int],
        is_committed: bool,
        found: dict[TopicPartition, int | None],
    ) -> None:
        """Add the received offsets to `found`; raise if some requests failed."""
        failures: list[AttemptFailed] = []
        for address, wanted in self._by_leader(at).items():
            try:
                answer = self.request(
                    address, make_list_offsets_request(wanted, is_committed=is_committed)
                )
            except ConnectionFailed as failure:
                failures.append(failure)
                self._invalidate_all(wanted)
                continue
            for tp, code, offset in parse_list_offsets(answer):
                if code == NONE:
                    found[tp] = offset
                    continue
                self.invalidate(tp.topic)
                error = error_for_code(f"the offsets of {tp}", code)
                if not isinstance(error, AttemptFailed):
                    raise error
                failures.append(error)
        if failures:
            raise failures[-1]

    def _by_leader(
        self, at: Mapping[TopicPartition, int]
    ) -> dict[BrokerAddress, dict[TopicPartition, WantedOffset]]:
        unknown = {tp.topic for tp in at} - self._views.keys()
        if unknown:
            self._fetch_metadata(unknown)
        by_leader: dict[BrokerAddress, dict[TopicPartition, WantedOffset]] = {}
        for tp, timestamp_ms in at.items():
            _, leader = self.leader(tp)
            wanted = WantedOffset(timestamp_ms, leader.epoch)
            by_leader.setdefault(leader.address, {})[tp] = wanted
        return by_leader

    def _invalidate_all(self, topic_partitions: Iterable[TopicPartition]) -> None:
        for tp in topic_partitions:
            self.invalidate(tp.topic)
