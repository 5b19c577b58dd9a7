"""A Kafka cluster as one who reads raw batches sees it: its topics, its offsets, its leaders."""

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

OPINIONS: Final = 3
"""How many brokers are asked for a topic that the first ones do not know."""

_Topic: Final = MetadataRequest.MetadataRequestTopic


class RawCluster:
    """Asks the brokers that the properties name, and those that they know; a context manager.

    Properties have librdkafka's names or Java's. One thread at a time may use it and its readers.
    Whatever another connection or newer metadata may mend is tried again for `timeout_s` seconds.

    Raises:
        ConfigurationError: properties are missing, wrong, or not safe to pass over.
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
        """Close every connection, those of readers, too."""
        self.connections.close()

    def topics(self, names: Collection[str] | None) -> dict[str, TopicDescription]:
        """The named topics as they are now, or all that may be seen; asking makes none.

        Raises:
            UnknownTopic: one of them is not there.
            NotAuthorized: the user may not see one of them, or is not let in.
            BrokersUnavailable: no broker could tell in time.
        """
        if names is not None and not names:
            return {}
        views = retry(self.patience("asking for topics"), lambda: self._look(names))
        return {topic: view.plan for topic, view in views.items()}

    def offsets(
        self, at: Mapping[TopicPartition, int], *, read_committed: bool | None = None
    ) -> dict[TopicPartition, int | None]:
        """For each partition the first offset whose record is of that time or later.

        Times are milliseconds since 1970, or EARLIEST or LATEST: where the log begins, and the
        offset of the record that comes next (with `read_committed`, of the first that is not
        decided yet). None: there is no record that late. Answers are exact, though compressed
        batches have to be looked into. `read_committed` is what `isolation.level` says unless it
        is given.

        Raises:
            UnknownTopic: a topic is not there, or has no such partition.
            NotAuthorized: the user may not read one of the topics, or is not let in.
            BrokersUnavailable: some leader could not tell in time.
        """
        is_committed = self.is_committed(read_committed)
        found: dict[TopicPartition, int | None] = {}

        def attempt() -> None:
            left = {place: time for place, time in at.items() if place not in found}
            self._ask_leaders(left, is_committed, found)

        retry(self.patience("asking for offsets"), attempt)
        return found

    @property
    def fetch_wait_ms(self) -> int:
        """How long a broker may wait for records; half of the time that it is waited for."""
        return min(self.settings.fetch_wait_ms, round(self.connections.wait_s * 500))

    def pause_s(self, throttle_ms: int) -> float:
        """How long to leave a broker in peace that asks for it: no longer than is waited for it."""
        return min(max(throttle_ms, 0) / 1000, self._timeout_s)

    def is_committed(self, read_committed: bool | None) -> bool:
        """Whether transactions that are not committed are left out, unless a caller says so."""
        return self.settings.is_read_committed if read_committed is None else read_committed

    def patience(self, what: str) -> RetryTimer:
        """The time for one thing, beginning now."""
        return RetryTimer(what, self._timeout_s, self.settings.retry_backoff_s)

    def leader(self, place: TopicPartition) -> tuple[TopicDescription, Leader]:
        """The topic of a partition, and who leads it, as far as is known.

        Raises:
            UnknownTopic: the topic is not there, or has no such partition.
            AttemptFailed: nobody leads it at present, or no broker could tell.
        """
        view = self._views.get(place.topic) or self._look([place.topic])[place.topic]
        if place.partition not in view.plan.partitions:
            self.forget(place.topic)
            raise UnknownTopic(f"topic {place.topic!r} has no partition {place.partition}")
        if place.partition not in view.leaders:
            self.forget(place.topic)
            raise AttemptFailed(f"{place} has no leader")
        return view.plan, view.leaders[place.partition]

    def forget(self, topic: str) -> None:
        """Ask for the leaders of a topic again before anybody is asked for its records."""
        self._views.pop(topic, None)

    def ask(self, address: BrokerAddress, message: Any) -> Any:
        """The answer of one broker to one of kafka-python's requests."""
        connection = self.connections.take(address)
        try:
            answer = connection.ask(message)
        except BaseException:
            self.connections.drop(connection)
            raise
        self.connections.give_back(connection)
        return answer

    def _look(self, names: Collection[str] | None) -> Mapping[str, TopicMetadata]:
        """The topics as a broker has them now; all are there, and ready to be read."""
        wanted = None if names is None else [_Topic(name=name) for name in sorted(set(names))]
        message = MetadataRequest(
            topics=wanted,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )
        view = self._ask_anyone(message)
        self._brokers = view.brokers
        unknown = view.unknown
        if names is not None and unknown:
            raise UnknownTopic(f"there is no topic {min(unknown)!r}")
        topics = {name: each for name, each in view.topics.items() if name not in unknown}
        for topic, found in topics.items():
            if found.error_code != NONE:
                raise error_for_code(f"topic {topic!r}", found.error_code)
        self._views.update(topics)
        return topics

    def _ask_anyone(self, message: Any) -> ClusterMetadata:
        """What a broker says; one that does not know a topic is believed if others do not, too.

        Brokers of a Kafka with ZooKeeper know no topic until their controller has told them all.
        """
        failure = ConnectionFailed("no broker is known")
        views: list[ClusterMetadata] = []
        for address in self._candidates():
            try:
                views.append(parse_metadata(self.ask(address, message)))
            except ConnectionFailed as each:
                failure = each
                continue
            if not views[-1].unknown or len(views) == OPINIONS:
                break
        if not views:
            raise failure
        return min(views, key=lambda view: len(view.unknown))

    def _candidates(self) -> list[BrokerAddress]:
        """Who may be asked: first those who are connected, at last those whom an operator named."""
        known = random.sample(self._brokers, len(self._brokers))
        bootstrap = random.sample(self.settings.bootstrap, len(self.settings.bootstrap))
        known.sort(key=lambda address: not self.connections.has(address))
        return list(dict.fromkeys([*known, *bootstrap]))

    def _ask_leaders(
        self,
        at: Mapping[TopicPartition, int],
        is_committed: bool,
        found: dict[TopicPartition, int | None],
    ) -> None:
        """Put the offsets that can be told into `found`; fails where some could not."""
        failures: list[AttemptFailed] = []
        for address, wanted in self._by_leader(at).items():
            try:
                answer = self.ask(
                    address, make_list_offsets_request(wanted, is_committed=is_committed)
                )
            except ConnectionFailed as failure:
                failures.append(failure)
                self._forget_all(wanted)
                continue
            for place, code, offset in parse_list_offsets(answer):
                if code == NONE:
                    found[place] = offset
                    continue
                self.forget(place.topic)
                error = error_for_code(f"the offsets of {place}", code)
                if not isinstance(error, AttemptFailed):
                    raise error
                failures.append(error)
        if failures:
            raise failures[-1]

    def _by_leader(
        self, at: Mapping[TopicPartition, int]
    ) -> dict[BrokerAddress, dict[TopicPartition, WantedOffset]]:
        unknown = {place.topic for place in at} - self._views.keys()
        if unknown:
            self._look(unknown)
        by_leader: dict[BrokerAddress, dict[TopicPartition, WantedOffset]] = {}
        for place, timestamp_ms in at.items():
            _, leader = self.leader(place)
            wanted = WantedOffset(timestamp_ms, leader.epoch)
            by_leader.setdefault(leader.address, {})[place] = wanted
        return by_leader

    def _forget_all(self, places: Iterable[TopicPartition]) -> None:
        for place in places:
            self.forget(place.topic)
