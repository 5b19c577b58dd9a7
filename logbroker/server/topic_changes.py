"""What clients may change about topics: checked against the newest view, asked of the registry."""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from logbroker.config import BrokerConfig, apply_topic_settings
from logbroker.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    LeaderNotAvailable,
    RequestRefused,
    StorageFailed,
)
from logbroker.registry.cluster import ClusterView
from logbroker.registry.registry import Registry, Replicas, Settings
from logbroker.registry.topic import Topic, check_growth, check_new_topic, place_partitions
from logbroker.server.connection import Connection
from logbroker.server.partition import Partitions
from logbroker.server.registry_crew import RegistryCrew

log = logging.getLogger("logbroker.topics")


class WantedTopic(NamedTuple):
    """A topic to be created; with `assignment` its partitions are placed by hand."""

    name: str
    partitions: int
    settings: Mapping[str, str]
    assignment: Replicas | None = None


class TopicChanges:
    """Changes that are durable when their call returns; for the registry crew's thread.

    Each raises what the registry's method of that name does, and what its own checks find.
    """

    def __init__(self, config: BrokerConfig, registry: Registry) -> None:
        self._config = config
        self._registry = registry

    @property
    def view(self) -> ClusterView:
        """The newest view, which may be newer than the one followed last."""
        return self._registry.view

    def check_new(self, wanted: WantedTopic) -> Replicas:
        """Refuse what `create` would refuse, and change nothing: who would get the partitions.

        Raises:
            InvalidTopic, TopicAlreadyExists: because of its name.
            InvalidPartitions: the brokers have no room for them.
            InvalidReplicaAssignment: it names brokers that are not there.
            InvalidConfig: a setting is unknown or out of its range.
        """
        view = self.view
        check_new_topic(wanted.name, view.topics)
        self._check_settings(wanted.settings)
        return self._place(view, wanted.name, wanted.partitions, wanted.assignment)

    def create(self, wanted: WantedTopic) -> Topic:
        """Create a topic, spread over the brokers that live."""
        replicas = self.check_new(wanted)
        topic = self._registry.create_topic(wanted.name, replicas, wanted.settings)
        log.info(
            "created topic=%s partitions=%d id=%s", topic.name, topic.partitions, topic.topic_id
        )
        return topic

    def delete(self, topic: Topic) -> None:
        """Delete a topic, but none that was made under its name since."""
        self._registry.delete_topic(topic.name, topic.topic_id)
        log.info("deleted topic=%s id=%s", topic.name, topic.topic_id)

    def check_growth(self, name: str, partitions: int, assignment: Replicas | None) -> Replicas:
        """Refuse what `grow` would refuse, and change nothing: who would keep the partitions."""
        view = self.view
        topic = view.topic(name)
        more = partitions - topic.partitions
        if more < 1:
            raise InvalidPartitions(
                f"{name} has {topic.partitions} partitions; {partitions} would be no more"
            )
        if assignment is not None and len(assignment) != more:
            raise InvalidReplicaAssignment(f"{len(assignment)} assignments for {more} more")
        replicas = (*topic.replicas, *self._place(view, name, more, assignment))
        check_growth(topic, replicas)
        return replicas

    def grow(self, name: str, partitions: int, assignment: Replicas | None) -> None:
        """Raise the partition count of a topic."""
        replicas = self.check_growth(name, partitions, assignment)
        self._registry.grow_topic(name, replicas)
        log.info("grew topic=%s partitions=%d", name, partitions)

    def check_change(self, name: str, change: Callable[[Settings], Settings]) -> None:
        """Refuse what `change_settings` would refuse, and change nothing."""
        self._check_settings(change(self.view.topic(name).settings))

    def change_settings(self, name: str, change: Callable[[Settings], Settings]) -> None:
        """Change a topic's own settings; the next append of each log follows them."""

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
                f"max.message.bytes is {config.max_message_bytes}; allowed is up to "
                f"{self._config.request_bytes_max}, the largest request of this broker"
            )

    def _place(
        self, view: ClusterView, name: str, more: int, assignment: Replicas | None
    ) -> Replicas:
        if not view.brokers:
            raise LeaderNotAvailable(f"{name} has no place, as no broker is registered now")
        room = _room(view, self._config.partitions_max)
        if more > sum(room.values()):
            raise InvalidPartitions(
                f"{name} asks for {more} more partitions; "
                f"brokers {sorted(room)} have room for {sum(room.values())}"
            )
        if assignment is None:
            replicas: Replicas = place_partitions(more, view.brokers, view.topics.values())
        else:
            _check_assignment(assignment, room)
            replicas = assignment
        _check_room(name, replicas, room)
        return replicas


Outcomes = dict[str, Topic | RequestRefused]
"""What became of the topics of these names."""


class TopicCreation:
    """Creates topics for a request and answers once this broker serves its share of them."""

    def __init__(self, changes: TopicChanges, crew: RegistryCrew, partitions: Partitions) -> None:
        self._changes = changes
        self._crew = crew
        self._partitions = partitions

    def create(
        self,
        connection: Connection,
        wanted: Sequence[WantedTopic],
        created: Callable[[Outcomes], None],
    ) -> None:
        """Create topics of different names, then tell `created` on the loop's thread.

        A topic whose folders this broker cannot make is taken back and refused: it would be
        named in metadata and served by nobody.
        """

        def followed(outcomes: Outcomes) -> None:
            failed = self._failed(outcomes)
            if failed:
                refusals = {topic.name: failure for topic, failure in failed}
                self._crew.ask(
                    connection,
                    lambda: self._take_back(failed),
                    lambda _: created({**outcomes, **refusals}),
                )
            else:
                created(outcomes)

        self._crew.ask(connection, lambda: {one.name: self._try(one) for one in wanted}, followed)

    def _try(self, wanted: WantedTopic) -> Topic | RequestRefused:
        try:
            return self._changes.create(wanted)
        except RequestRefused as refusal:
            return refusal

    def _failed(self, outcomes: Outcomes) -> list[tuple[Topic, StorageFailed]]:
        return [
            (outcome, failure)
            for outcome in outcomes.values()
            if isinstance(outcome, Topic)
            and (failure := self._partitions.failure_of(outcome)) is not None
        ]

    def _take_back(self, failed: Sequence[tuple[Topic, StorageFailed]]) -> None:
        for topic, failure in failed:
            log.error("taken back topic=%s reason=%s", topic.name, failure)
            try:
                self._changes.delete(topic)
            except RequestRefused as refusal:
                log.error("topic=%s stays without its folders: %s", topic.name, refusal)


def _room(view: ClusterView, partitions_max: int) -> dict[int, int]:
    """How many more partitions each live broker takes."""
    load = Counter(
        replica
        for topic in view.topics.values()
        for replicas in topic.replicas
        for replica in replicas
    )
    return {broker: max(0, partitions_max - load[broker]) for broker in view.brokers}


def _check_assignment(assignment: Replicas, live: Mapping[int, int]) -> None:
    for brokers in assignment:
        if len(brokers) != 1 or brokers[0] not in live:
            raise InvalidReplicaAssignment(
                f"assigned to brokers {list(brokers)}; allowed is one of {sorted(live)} for each "
                "partition"
            )


def _check_room(name: str, replicas: Replicas, room: Mapping[int, int]) -> None:
    for broker, count in Counter(brokers[0] for brokers in replicas).items():
        if count > room[broker]:
            raise InvalidPartitions(
                f"{name} asks for {count} more partitions of broker {broker}, "
                f"which has room for {room[broker]}"
            )
