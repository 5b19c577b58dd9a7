"""Brings the destination's topics into line with the source's, before anything is copied."""

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
from logbroker.mirror.topic_choice import TopicChoice
from logbroker.mirror.topic_ids import TopicIds
from logbroker.mirror.topic_watch import TopicWatch, partition_counts

_log: Final = logging.getLogger(__name__)

ANSWER_S: Final = 5.0
"""How long one question waits for its answer."""

_BROKER_DEFAULT: Final = -1
"""Leaves the count of replicas to the destination (KIP-464)."""

STAMP: Final = "message.timestamp.type"
SIZE_MAX: Final = "max.message.bytes"

NOT_COPIED: Final = frozenset(
    {
        # Records keep their times at the destination.
        STAMP,
        "message.timestamp.difference.max.ms",
        "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms",
        # What depends on the brokers that there are.
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "leader.replication.throttled.replicas",
        "follower.replication.throttled.replicas",
    }
)
"""Settings of a topic at the source that are none of the destination's business."""

_ABOUT_TOPIC: Final = frozenset(
    (
        *(KafkaError.TOPIC_EXCEPTION, KafkaError.TOPIC_AUTHORIZATION_FAILED),
        *(KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.POLICY_VIOLATION),
        *(KafkaError.INVALID_PARTITIONS, KafkaError.INVALID_REPLICATION_FACTOR),
        *(KafkaError.INVALID_CONFIG, KafkaError.INVALID_REQUEST),
    )
)
"""What the destination has against a topic; waiting would not help."""

Settings = Mapping[str, ConfigEntry]
"""Those of one topic, by their names."""


class Aligned(NamedTuple):
    """What may be copied now: topics, the partitions of those there are, and the size of a batch.

    `watch` tells when patterns choose other topics than these.
    """

    topics: Sequence[str]
    partitions: Mapping[str, int]
    batch_bytes: int
    ids: TopicIds
    watch: TopicWatch


class TopicAligner:
    """Makes topics and partitions that the destination lacks.

    Every method raises KafkaException when a broker refuses or does not answer.
    """

    def __init__(self, source: AdminClient, destination: AdminClient, choice: TopicChoice) -> None:
        self._source = source
        self._destination = destination
        self._choice = choice
        self._said_missing: set[str] = set()
        self._said_found: set[str] = set()
        self._left_out: set[str] = set()

    def cluster_ids(self) -> tuple[str, str]:
        """The ids of the source and of the destination.

        Raises:
            ConfigurationError: they are one cluster.
        """
        source, destination = _cluster_id(self._source), _cluster_id(self._destination)
        if source == destination:
            raise ConfigurationError(
                f"--from and --to lead to one cluster, {source}; allowed is another one"
            )
        return source, destination

    def hear_complaints(self) -> None:
        """Have the clients' callbacks called with what they have against the clusters."""
        self._source.poll(0)
        self._destination.poll(0)

    def align(self) -> Aligned | None:
        """What may be copied; None where something was changed, which has to show first.

        A topic that the source does not have (yet) is left out, and so is one that a pattern
        found and that cannot be mirrored: it is no reason to end.

        Raises:
            ConfigurationError: of a topic that was named the destination has more partitions, or
                stamps times.
        """
        at_source = partition_counts(self._source, ANSWER_S)
        found = self._choice.found(at_source)
        self._tell_missing(at_source)
        self._tell_found(found)
        wanted = {t: at_source[t] for t in (*self._choice.names, *found) if t in at_source}
        if self._has_changed(wanted):
            return None
        settings = _settings(self._destination, self._fit(wanted))
        self._leave_out(_stamping(settings))
        fit, self._left_out = self._fit(wanted), set()
        return Aligned(
            [*self._choice.names, *(topic for topic in fit if topic in found)],
            {topic: wanted[topic] for topic in fit},
            _batch_bytes(settings[topic] for topic in fit),
            TopicIds(self._source, fit),
            TopicWatch(self._source, self._choice, found.keys()),
        )

    def _tell_missing(self, there: Mapping[str, int]) -> None:
        missing = {topic for topic in self._choice.names if topic not in there}
        for topic in sorted(missing - self._said_missing):
            _log.warning("not at the source yet topic=%s", topic)
        self._said_missing = missing

    def _tell_found(self, found: Mapping[str, str]) -> None:
        for topic, pattern in found.items():
            if topic not in self._said_found:
                _log.info("topic found topic=%s pattern=%s", topic, pattern)
        self._said_found = set(found)

    def _fit(self, wanted: Mapping[str, int]) -> list[str]:
        return [topic for topic in wanted if topic not in self._left_out]

    def _leave_out(self, problems: Mapping[str, str]) -> None:
        """Go on without topics that patterns found.

        Raises:
            ConfigurationError: one of them was named.
        """
        named = [problem for topic, problem in problems.items() if topic in self._choice.names]
        if named:
            raise ConfigurationError("\n".join(named))
        for topic, problem in problems.items():
            _log.error("topic left out topic=%s reason=%s", topic, problem)
        self._left_out |= problems.keys()

    def _has_changed(self, wanted: Mapping[str, int]) -> bool:
        """Make what the destination lacks: whether there was anything to make."""
        there = _counts(self._destination.list_topics(timeout=ANSWER_S))
        fit = self._fit(wanted)
        self._leave_out(_shrinking({topic: wanted[topic] for topic in fit}, there))
        fit = self._fit(wanted)
        missing = [topic for topic in fit if topic not in there]
        grown = [topic for topic in fit if 0 < there.get(topic, 0) < wanted[topic]]
        for topic in missing:
            self._attempt(topic, partial(self._create, topic, wanted[topic]))
        for topic in grown:
            self._attempt(topic, partial(self._grow, topic, there[topic], wanted[topic]))
        return bool(missing or grown)

    def _attempt(self, topic: str, change: Callable[[], None]) -> None:
        try:
            change()
        except KafkaException as refusal:
            error = refusal.args[0]
            if topic in self._choice.names or error.code() not in _ABOUT_TOPIC:
                raise
            self._leave_out({topic: error.str()})

    def _create(self, topic: str, count: int) -> None:
        settings = self._settings_to_copy(topic)
        try:
            self._order(topic, count, settings)
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.INVALID_CONFIG:
                raise
            taken = {n: v for n, v in settings.items() if self._takes(topic, count, {n: v})}
            left = ",".join(sorted(settings.keys() - taken.keys()))
            _log.warning("settings not taken by the destination topic=%s settings=%s", topic, left)
            self._order(topic, count, taken)
            settings = taken
        told = ",".join(f"{name}={value}" for name, value in sorted(settings.items()))
        _log.info("topic created topic=%s partitions=%s settings=%s", topic, count, told)

    def _order(
        self, topic: str, count: int, settings: dict[str, str], *, is_trial: bool = False
    ) -> None:
        new = NewTopic(topic, count, _BROKER_DEFAULT, config=settings)
        orders = self._destination.create_topics(
            [new], request_timeout=ANSWER_S, validate_only=is_trial
        )
        try:
            orders[topic].result()
        except KafkaException as refusal:
            # Another mirror was faster.
            if refusal.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _takes(self, topic: str, count: int, settings: dict[str, str]) -> bool:
        try:
            self._order(topic, count, settings, is_trial=True)
        except KafkaException as refusal:
            if refusal.args[0].code() != KafkaError.INVALID_CONFIG:
                raise
            return False
        return True

    def _grow(self, topic: str, there: int, count: int) -> None:
        orders = self._destination.create_partitions(
            [NewPartitions(topic, count)], request_timeout=ANSWER_S
        )
        orders[topic].result()
        _log.info("partitions added topic=%s from=%s to=%s", topic, there, count)

    def _settings_to_copy(self, topic: str) -> dict[str, str]:
        """What the topic has of its own; the clusters' defaults are each cluster's."""
        (settings,) = _settings(self._source, [topic]).values()
        return {
            name: entry.value
            for name, entry in settings.items()
            if entry.source in (ConfigSource.DYNAMIC_TOPIC_CONFIG, 1)
            and entry.value is not None
            and name not in NOT_COPIED
        }


def _cluster_id(client: AdminClient) -> str:
    return client.list_topics(timeout=ANSWER_S).cluster_id or ""


def _counts(metadata: ClusterMetadata) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in metadata.topics.items()}


def _shrinking(wanted: Mapping[str, int], there: Mapping[str, int]) -> dict[str, str]:
    """By topic, that the destination has more partitions."""
    return {
        topic: f"topic {topic!r} has {there[topic]} partitions at the destination and {count} at "
        f"the source; allowed are {count} at most, as each record keeps its partition"
        for topic, count in wanted.items()
        if there.get(topic, 0) > count
    }


def _stamping(settings: Mapping[str, Settings]) -> dict[str, str]:
    """By topic, that the destination gives records other times."""
    return {
        topic: f"{STAMP} of topic {topic!r} is 'LogAppendTime' at the destination; allowed is "
        "'CreateTime', as records keep their times"
        for topic, each in settings.items()
        if STAMP in each and each[STAMP].value == "LogAppendTime"
    }


def _batch_bytes(topics: Iterable[Settings]) -> int:
    """So much as every topic takes: a batch that is too large would stop the mirror."""
    sizes = [each[SIZE_MAX].value for each in topics if SIZE_MAX in each]
    bytes_max = min((int(size) - BATCH_HEADROOM for size in sizes if size), default=BATCH_BYTES)
    # One record makes a batch, however large it is.
    return max(1, min(BATCH_BYTES, bytes_max))


def _settings(client: AdminClient, topics: Sequence[str]) -> dict[str, Settings]:
    if not topics:
        return {}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
    answers = client.describe_configs(resources, request_timeout=ANSWER_S)
    return {resource.name: future.result() for resource, future in answers.items()}
