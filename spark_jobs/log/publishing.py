"""Publishes records to a topic and waits until the log has acknowledged all of them."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from spark_jobs.errors import InvalidOption, SourceFailed

_DELIVERY_MS: Final = 120_000
_FLUSH_S: Final = 2 * _DELIVERY_MS / 1_000
"""Longer than the client's delivery timeout, after which it reports each record."""

_POLL_S: Final = 0.1


class TopicPublisher:
    """Publishes to one topic; each record is written once although the client may resend it.

    The properties of `properties` replace those of `settings`.

    Raises:
        InvalidOption: the client rejects a property.
    """

    def __init__(
        self, topic: str, properties: Mapping[str, Any], settings: Mapping[str, Any]
    ) -> None:
        self._topic = topic
        configuration: dict[str, Any] = {
            "enable.idempotence": True,
            "acks": "all",
            "delivery.timeout.ms": _DELIVERY_MS,
            **settings,
            **properties,
            "log_level": 0,
        }
        try:
            self._producer = Producer(configuration)
        except KafkaException as refusal:
            raise InvalidOption(f"invalid client properties: {refusal.args[0].str()}") from refusal

    def publish_all(self, records: Iterable[Mapping[str, Any]]) -> int:
        """Publish records in their order; their number, once all are acknowledged.

        A record is the arguments of `Producer.produce`. The first failure ends the publishing.

        Raises:
            SourceFailed: the log did not acknowledge all of them.
        """
        failures: list[KafkaError] = []

        def record_failure(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                failures.append(error)

        count = 0
        for record in records:
            self._produce(on_delivery=record_failure, **record)
            count += 1
            if failures:
                break
        left = self._producer.flush(_FLUSH_S)
        if failures or left:
            reason = failures[0].str() if failures else "no response"
            raise SourceFailed(f"not all records were published to {self._topic}: {reason}")
        return count

    def _produce(self, **record: Any) -> None:
        while True:
            try:
                self._producer.produce(self._topic, **record)
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(_POLL_S)
            except KafkaException as refusal:
                raise SourceFailed(f"{self._topic}: {refusal.args[0].str()}") from refusal
            else:
                return
