"""Changes of topics: validated against the newest view, then written to the registry."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from logbroker.config import BrokerConfig
from logbroker.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    LeaderNotAvailable,
    RequestRefused,
    StorageFailed,
)
from logbroker.registry.cluster import ClusterView
from logbroker.registry.registry import PlacedTopic, Registry, Replicas, Settings
from logbroker.registry.topic import (
    Topic,
    check_growth,
    place_partitions,
)
from logbroker.registry.topic_table import TopicIndex
from logbroker.server.connection import Connection
from logbroker.server.partition import Partitions
from logbroker.server.registry_thread import RegistryThread
from logbroker.topic_settings import apply_topic_settings

log = logging.getLogger("logbroker.topics")


class NewTopic(NamedTuple):
    """A topic to create; `assignment` places its partitions on brokers."""

    name: str
    partitions: int
    settings: Mapping[str, str]
    assignment: Replicas | None = None


class TopicChanges:
    """Changes that are durable when the call returns; runs on the registry thread.

    Each method raises the errors of its validation and of the registry's method.
    """

    def __init__(self, config: BrokerConfig, registry: Registry) -> None:
        self._config = config
        self._registry = registry
        self._index = TopicIndex()

    @property
    def view(self) -> ClusterView:
        """The newest view, which may be newer than the one applied last."""
        return self._registry.view

    def check_all(self, wanted: Sequence[NewTopic]) -> dict[str, PlacedTopic | RequestRefused]:
        """Validate as `create_all` does, without a change; returns placed topics or errors.

        InvalidTopic, TopicAlreadyExists: the name is invalid or in use. InvalidPartitions: the
        brokers would exceed their maximum of partitions. InvalidReplicaAssignment: the assignment
        names unknown brokers. InvalidConfig: a setting is unknown or out of range.
        """
        view = self.view
        self._index.follow(view.topics)
        names, load = self._index.names.extended(), Counter(self._index.load)
        outcomes: dict[str, PlacedTopic | RequestRefused] = {}
        for new in wanted:
            try:
                names.check(new.name)
                self._check_settings(new.settings)
                replicas = self._place(view, load, new.name, new.partitions, new.assignment)
            except RequestRefused as refusal:
                outcomes[new.name] = refusal
                continue
            names.add(new.name)
            load.update(brokers[0] for brokers in replicas)
            outcomes[new.name] = PlacedTopic(new.name, replicas, new.settings)
        return outcomes

    def create_all(self, wanted: Sequence[NewTopic]) -> "Outcomes":
        """Create topics with distinct names, their partitions spread over the live brokers."""
        checked = self.check_all(wanted)
        placed = [each for each in checked.values() if isinstance(each, PlacedTopic)]
        created = self._registry.create_topics(placed) if placed else []
        outcomes = {new.name: outcome for new, outcome in zip(placed, created, strict=True)}
        for topic in outcomes.values():
            if isinstance(topic, Topic):
                log.info(
                    "created topic=%s partitions=%d id=%s",
                    topic.name,
                    topic.partitions,
                    topic.topic_id,
                )
        return outcomes | {
            name: each for name, each in checked.items() if isinstance(each, RequestRefused)
        }

    def delete(self, topic: Topic) -> None:
        """Delete a topic, but not a newer one with the same name."""
        self._registry.delete_topic(topic.name, topic.topic_id)
        log.info("deleted topic=%s id=%s", topic.name, topic.topic_id)

    def check_growth(self, name: str, partitions: int, assignment: Replicas | None) -> Replicas:
        """Validate as `add_partitions` does, without a change; returns the replicas."""
        view = self.view
        topic = view.topic(name)
        more = partitions - topic.partitions
        if more < 1:
            raise InvalidPartitions(
                f"{name} has {topic.partitions} partitions; allowed: more, not {partitions}"
            )
        if assignment is not None and len(assignment) != more:
            raise InvalidReplicaAssignment(
                f"{len(assignment)} assignments for {more} new partitions"
            )
        self._index.follow(view.topics)
        more_replicas = self._place(view, self._index.load, name, more, assignment)
        replicas = (*topic.replicas, *more_replicas)
        check_growth(topic, replicas)
        return replicas

    def add_partitions(self, name: str, partitions: int, assignment: Replicas | None) -> None:
        """Increase the partition count of a topic."""
        replicas = self.check_growth(name, partitions, assignment)
        self._registry.grow_topic(name, replicas)
        log.info("added partitions topic=%s partitions=%d", name, partitions)

    def check_change(self, name: str, change: Callable[[Settings], Settings]) -> None:
        """Validate as `change_settings` does, without a change."""
        self._check_settings(change(self.view.topic(name).settings))

    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> None:
        """Change a topic's own settings, from the next append on."""

        def checked(present: Settings) -> Settings:
            settings = change(present)
            self._check_settings(settings)
            return settings

        topic = self._registry.change_settings(name, checked)
        log.info("configured topic=%s settings=%s", name, dict(topic.settings))

    def _check_settings(self, settings: Settings) -> None:
        config = apply_topic_settings(self._config.topic_defaults, settings)
        if config.max_message_bytes > self._config.request_bytes_max:
            raise InvalidConfig(
                f"max.message.bytes is {config.max_message_bytes}; allowed: up to "
                f"{self._config.request_bytes_max}, the largest request of this broker"
            )

    def _place(
        self,
        view: ClusterView,
        load: Mapping[int, int],
        name: str,
        more: int,
        assignment: Replicas | None,
    ) -> Replicas:
        if not view.brokers:
            raise LeaderNotAvailable(f"{name} cannot be placed: no broker is registered")
        partitions_max = self._config.partitions_max
        free = {broker: max(0, partitions_max - load.get(broker, 0)) for broker in view.brokers}
        if more > sum(free.values()):
            raise InvalidPartitions(
                f"{name} needs {more} more partitions; "
                f"brokers {sorted(free)} can take {sum(free.values())}"
            )
        if assignment is None:
            replicas: Replicas = place_partitions(more, view.brokers, load)
        else:
            _check_assignment(assignment, free)
            replicas = assignment
        _check_limit(name, replicas, free)
        return replicas


Outcomes = dict[str, Topic | RequestRefused]
"""The created topic, or the error, by name."""


class TopicCreation:
    """Creates topics and reports the result once this broker has opened its partitions."""

    def __init__(
        self, changes: TopicChanges, registry_thread: RegistryThread, partitions: Partitions
    ) -> None:
        self._changes = changes
        self._registry_thread = registry_thread
        self._partitions = partitions

    def create(
        self,
        connection: Connection,
        wanted: Sequence[NewTopic],
        created: Callable[[Outcomes], None],
    ) -> None:
        """Create topics with distinct names, then call `created` on the loop's thread.

        A topic whose logs this broker cannot create is deleted again: otherwise metadata would
        contain partitions that no broker serves.
        """

        def applied(outcomes: Outcomes) -> None:
            failed = self._failed(outcomes)
            if failed:
                refusals = {topic.name: failure for topic, failure in failed}
                self._registry_thread.submit(
                    connection,
                    lambda: self._delete_failed(failed),
                    lambda _: created({**outcomes, **refusals}),
                )
            else:
                created(outcomes)

        self._registry_thread.submit(connection, lambda: self._changes.create_all(wanted), applied)

    def _failed(self, outcomes: Outcomes) -> list[tuple[Topic, StorageFailed]]:
        return [
            (outcome, failure)
            for outcome in outcomes.values()
            if isinstance(outcome, Topic)
            and (failure := self._partitions.failure_of(outcome)) is not None
        ]

    def _delete_failed(self, failed: Sequence[tuple[Topic, StorageFailed]]) -> None:
        for topic, failure in failed:
            log.error("topic is deleted again topic=%s reason=%s", topic.name, failure)
            try:
                self._changes.delete(topic)
            except RequestRefused as refusal:
                log.error(
                    "cannot delete topic without logs topic=%s reason=%s", topic.name, refusal
                )


def _check_assignment(assignment: Replicas, live: Mapping[int, int]) -> None:
    for brokers in assignment:
        if len(brokers) != 1 or brokers[0] not in live:
            raise InvalidReplicaAssignment(
                f"assigned to brokers {list(brokers)}; allowed: one of {sorted(live)} for each "
                "partition"
            )


def _check_limit(name: str, replicas: Replicas, free: Mapping[int, int]) -> None:
    for broker, count in Counter(brokers[0] for brokers in replicas).items():
        if count > free[broker]:
            raise InvalidPartitions(
                f"{name} needs {count} more partitions on broker {broker}, "
                f"which can take {free[broker]}"
            )
