"""Topics as described by any broker.

It uses kafka-python. librdkafka sends topic requests to the controller, which fail while that
broker is down.
"""

import base64
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self, TypeVar
from uuid import UUID

import confluent_kafka
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource
from kafka.errors import KafkaError, RetriableError

from logbroker.cli.admin_command import REQUEST_TIMEOUT_S, client_properties

T = TypeVar("T")

_TIMEOUT_MS: Final = round(REQUEST_TIMEOUT_S * 1000)
_RETRY_S: Final = 0.05
_NO_LEADER: Final = -1


_SETTINGS: Final = {
    "security.protocol": "security_protocol",
    "ssl.ca.location": "ssl_cafile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
}
"""The settings of kafka-python for librdkafka's properties of TLS and SASL."""


class PartitionFacts(NamedTuple):
    """One partition and the ids of its brokers."""

    number: int
    leader: int | None
    replicas: list[int]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic; brokers before Kafka 2.8 return no id."""

    name: str
    topic_id: str | None
    partitions: list[PartitionFacts]


class TopicFactsClient:
    """A client that works with any reachable broker; a context manager.

    Every method raises confluent-kafka's KafkaException if a broker returns an error or none is
    reachable, as the other client does.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._client: Any = None

    def __enter__(self) -> Self:
        """Connect."""
        self._client = _translated(self._connect)
        return self

    def __exit__(self, *_: object) -> None:
        """Disconnect."""
        self._client.close()

    def describe(self, names: Sequence[str] | None) -> list[TopicFacts]:
        """Return the named topics in order, or all topics by name; creates none."""
        answers = _translated(lambda: self._client.describe_topics(names))
        topics = {each.name: each for each in map(_topic, answers)}
        return [topics[name] for name in (sorted(topics) if names is None else names)]

    def changed_settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of each topic that differ from the defaults."""
        resources = [ConfigResource("TOPIC", name) for name in names]
        answers = _translated(lambda: self._client.describe_configs(resources))
        return {
            topic: {name: entry["value"] for name, entry in sorted(settings.items())}
            for topic, settings in answers.get("topic", {}).items()
        }

    def _connect(self) -> KafkaAdminClient:
        return KafkaAdminClient(
            **_settings(client_properties()),
            bootstrap_servers=self._bootstrap_servers,
            bootstrap_timeout_ms=_TIMEOUT_MS,
            request_timeout_ms=_TIMEOUT_MS,
        )


def _settings(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of kafka-python for TLS and SASL; it needs no others of librdkafka's."""
    return {_SETTINGS[name]: value for name, value in properties.items() if name in _SETTINGS}


def _translated(ask: Callable[[], T]) -> T:
    """Return the result of `ask`, which is repeated while its broker does not answer."""
    deadline_s = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        try:
            return ask()
        except RetriableError:
            if time.monotonic() >= deadline_s:
                raise _exception(confluent_kafka.KafkaError._TIMED_OUT) from None  # noqa: SLF001
            # The client remembers the failed broker and chooses another one.
            time.sleep(_RETRY_S)
        except KafkaError as error:
            raise _exception(getattr(error, "errno", confluent_kafka.KafkaError.UNKNOWN)) from error


def _exception(code: int) -> confluent_kafka.KafkaException:
    return confluent_kafka.KafkaException(confluent_kafka.KafkaError(code))


def _topic(answer: Mapping[str, Any]) -> TopicFacts:
    if answer["error_code"]:
        raise _exception(answer["error_code"])
    topic_id = answer["topic_id"]
    return TopicFacts(
        name=answer["name"],
        topic_id=None if topic_id is None else _text(UUID(topic_id)),
        partitions=sorted(map(_partition, answer["partitions"])),
    )


def _text(topic_id: UUID) -> str:
    """Format a topic id as Kafka's own tools and files do."""
    return base64.urlsafe_b64encode(topic_id.bytes).decode().rstrip("=")


def _partition(answer: Mapping[str, Any]) -> PartitionFacts:
    leader = answer["leader_id"]
    return PartitionFacts(
        number=answer["partition_index"],
        leader=None if leader == _NO_LEADER else leader,
        replicas=answer["replica_nodes"],
    )
