"""Creates the topics and partitions that the destination lacks, before anything is copied."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from logbroker.errors import ConfigurationError
from logbroker.mirror.clients import BATCH_BYTES, BATCH_HEADROOM
from logbroker.mirror.domain.topic_selection import TopicSelection
from logbroker.mirror.topic_changes import PatternWatch, TopicIds, partition_counts

_log: Final = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 5.0
"""How long one request waits for its answer."""

_BROKER_DEFAULT: Final = -1
"""The replication factor is the destination's default (KIP-464)."""

TIMESTAMP_TYPE: Final = "message.timestamp.type"
SIZE_MAX: Final = "max.message.bytes"

NOT_COPIED: Final = frozenset(
    {
        # Records keep their times at the destination.
        TIMESTAMP_TYPE,
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        # These depend on the number of brokers.
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Settings of a topic that are not copied to the destination."""

_TOPIC_ERRORS: Final = frozenset(
    (
        *(KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED),
        *(KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION),
        *(KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_REPLICATION_FACTOR),
        *(KafkaError.INVALID_CONFIG, KafkaError.INVALID_REQUEST),
    )
)
"""Errors of the destination about a topic, which a retry does not cure."""

Settings = Mapping[str, ConfigEntry]
"""The settings of one topic by name."""


class CopyPlan(NamedTuple):
    """What can be copied now: topics, partition counts of the existing ones, and the batch size.

    `watch` detects that the patterns match other topics than these.
    """

    topics: Sequence[str]
    partitions: Mapping[str, int]
    batch_bytes: int
    ids: TopicIds
    watch: PatternWatch


class TopicAligner:
    """Creates topics and partitions that the destination lacks.

    Every method raises KafkaException if a broker rejects a request or does not answer.
    """

    def __init__(
        self, source: AdminClient, destination: AdminClient, selection: TopicSelection
    ) -> None:
        self._source = source
        self._destination = destination
        self._selection = selection
        self._logged_missing: set[str] = set()
        self._logged_matches: set[str] = set()
        self._omitted: set[str] = set()

    def cluster_ids(self) -> tuple[str, str]:
        """Return the ids of the source and of the destination.

        Raises:
            ConfigurationError: both are the same cluster.
        """
        source, destination = _cluster_id(self._source), _cluster_id(self._destination)
        if source == destination:
            raise ConfigurationError(
                f"--from and --to are the same cluster: {source}; allowed: two clusters"
            )
        return source, destination

    def poll_errors(self) -> None:
        """Run the error callbacks of the clients."""
        self._source.poll(0)
        self._destination.poll(0)

    def align(self) -> CopyPlan | None:
        """Return what can be copied; None after a change, which has to become visible first.

        A topic that the source does not have (yet) is omitted, and so is one that only a pattern
        selects and that cannot be mirrored.

        Raises:
            ConfigurationError: for a topic that is listed by name, the destination has more
                partitions, or sets timestamps itself.
        """
        at_source = partition_counts(self._source, REQUEST_TIMEOUT_S)
        matching = self._selection.matching(at_source)
        self._log_missing(at_source)
        self._log_matches(matching)
        wanted = {t: at_source[t] for t in (*self._selection.names, *matching) if t in at_source}
        if self._create_missing(wanted):
            return None
        settings = _settings(self._destination, self._fit(wanted))
        self._omit(_setting_times(settings))
        fit, self._omitted = self._fit(wanted), set()
        return CopyPlan(
            [*self._selection.names, *(topic for topic in fit if topic in matching)],
            {topic: wanted[topic] for topic in fit},
            _batch_bytes(settings[topic] for topic in fit),
            TopicIds(self._source, fit),
            PatternWatch(self._source, self._selection, matching.keys()),
        )

    def _log_missing(self, existing: Mapping[str, int]) -> None:
        missing = {topic for topic in self._selection.names if topic not in existing}
        for topic in sorted(missing - self._logged_missing):
            _log.warning("topic is missing at the source topic=%s", topic)
        self._logged_missing = missing

    def _log_matches(self, matching: Mapping[str, str]) -> None:
        for topic, pattern in matching.items():
            if topic not in self._logged_matches:
                _log.info("topic found topic=%s pattern=%s", topic, pattern)
        self._logged_matches = set(matching)

    def _fit(self, wanted: Mapping[str, int]) -> list[str]:
        return [topic for topic in wanted if topic not in self._omitted]

    def _omit(self, problems: Mapping[str, str]) -> None:
        """Continue without topics that only patterns select.

        Raises:
            ConfigurationError: one of them is listed by name.
        """
        named = [problem for topic, problem in problems.items() if topic in self._selection.names]
        if named:
            raise ConfigurationError("\n".join(named))
        for topic, problem in problems.items():
            _log.error("topic omitted topic=%s reason=%s", topic, problem)
        self._omitted |= problems.keys()

    def _create_missing(self, wanted: Mapping[str, int]) -> bool:
        """Create what the destination lacks; return whether existing was anything to create."""
        existing = _counts(self._destination.list_topics(timeout=REQUEST_TIMEOUT_S))
        fit = self._fit(wanted)
        self._omit(_with_more_partitions({topic: wanted[topic] for topic in fit}, existing))
        fit = self._fit(wanted)
        missing = [topic for topic in fit if topic not in existing]
        grown = [topic for topic in fit if 0 < existing.get(topic, 0) < wanted[topic]]
        for topic in missing:
            self._attempt(topic, partial(self._create, topic, wanted[topic]))
        for topic in grown:
            self._attempt(
                topic, partial(self._add_partitions, topic, existing[topic], wanted[topic])
            )
        return bool(missing or grown)

    def _attempt(self, topic: str, change: Callable[[], None]) -> None:
        try:
            change()
        except KafkaException as refusal:
            error = refusal.args[0]
            if topic in self._selection.names or error.code() not in _TOPIC_ERRORS:
                raise
            self._omit({topic: error.str()})

    def _create(self, topic: str, count: int) -> None:
        settings = self._settings_to_copy(topic)
        try:
            self._request_topic(topic, count, settings)
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.INVALID_CONFIG:
                raise
            accepted = {n: v for n, v in settings.items() if self._accepts(topic, count, {n: v})}
            rejected = ",".join(sorted(settings.keys() - accepted.keys()))
            _log.warning("settings rejected topic=%s settings=%s", topic, rejected)
            self._request_topic(topic, count, accepted)
            settings = accepted
        text = ",".join(f"{name}={value}" for name, value in sorted(settings.items()))
        _log.info("topic created topic=%s partitions=%s settings=%s", topic, count, text)

    def _request_topic(
        self, topic: str, count: int, settings: dict[str, str], *, is_trial: bool = False
    ) -> None:
        new = NewTopic(topic, count, _BROKER_DEFAULT, config=settings)
        futures = self._destination.create_topics(
            [new], request_timeout=REQUEST_TIMEOUT_S, validate_only=is_trial
        )
        try:
            futures[topic].result()
        except KafkaException as refusal:
            # Another mirror has created it.
            if refusal.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _accepts(self, topic: str, count: int, settings: dict[str, str]) -> bool:
        try:
            self._request_topic(topic, count, settings, is_trial=True)
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.INVALID_CONFIG:
                raise
            return False
        return True

    def _add_partitions(self, topic: str, existing: int, count: int) -> None:
        futures = self._destination.create_partitions(
            [NewPartitions(topic, count)], request_timeout=REQUEST_TIMEOUT_S
        )
        futures[topic].result()
        _log.info("partitions added topic=%s from=%s to=%s", topic, existing, count)

    def _settings_to_copy(self, topic: str) -> dict[str, str]:
        """Return the settings that the topic itself has, without the cluster's defaults."""
        (settings,) = _settings(self._source, [topic]).values()
        return {
            name: entry.value
            for name, entry in settings.items()
            if entry.source in (ConfigSource.DYNAMIC_TOPIC_CONFIG, 1)
            and entry.value is not None
            and name not in NOT_COPIED
        }


def _cluster_id(client: AdminClient) -> str:
    return client.list_topics(timeout=REQUEST_TIMEOUT_S).cluster_id or ""


def _counts(metadata: ClusterMetadata) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _with_more_partitions(wanted: Mapping[str, int], existing: Mapping[str, int]) -> dict[str, str]:
    """Return a problem for each topic with more partitions at the destination."""
    return {
        topic: f"topic {topic!r} has {existing[topic]} partitions at the destination and "
        f"{count} at the source; allowed: at most {count}, because records keep their partition"
        for topic, count in wanted.items()
        if existing.get(topic, 0) > count
    }


def _setting_times(settings: Mapping[str, Settings]) -> dict[str, str]:
    """Return a problem for each topic whose destination sets timestamps itself."""
    return {
        topic: f"{TIMESTAMP_TYPE} of topic {topic!r} is 'LogAppendTime' at the destination; "
        "allowed: 'CreateTime', because records keep their times"
        for topic, each in settings.items()
        if TIMESTAMP_TYPE in each and each[TIMESTAMP_TYPE].value == "LogAppendTime"
    }


def _batch_bytes(topics: Iterable[Settings]) -> int:
    """Return the size that every topic accepts: a larger batch would stop the mirror."""
    sizes = [each[SIZE_MAX].value for each in topics if SIZE_MAX in each]
    bytes_max = min((int(size) - BATCH_HEADROOM for size in sizes if size), default=BATCH_BYTES)
    # A single record is a batch, however large it is.
    return max(1, min(BATCH_BYTES, bytes_max))


def _settings(client: AdminClient, topics: Sequence[str]) -> dict[str, Settings]:
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    answers = client.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S)
    return {resource.name: future.result() for resource, future in answers.items()}
