"""Publishes events for the live path: as fast as possible, or at a steady rate."""

import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from app.log.publisher import publisher_configuration

BODY_BYTES: Final = 200
FLUSH_S: Final = 60.0
QUEUED_MAX: Final = 1_000_000


class Latencies(NamedTuple):
    """Latencies of many events in ms, from publication to arrival at the receiver."""

    p50: float
    p99: float
    longest: float


class EventSource:
    """Publishes as the API does, to any topic; events have the types in `kinds` in turn."""

    def __init__(self, bootstrap_servers: str) -> None:
        settings = publisher_configuration(bootstrap_servers, {"log_level": "0"})
        # Larger batches than the service's, for the highest rate.
        settings |= {"linger.ms": 5, "queue.buffering.max.messages": QUEUED_MAX}
        self._producer = Producer(settings)
        self._count = 0
        self._errors: list[KafkaError] = []

    def publish(self, topic: str, kinds: Sequence[str], count: int) -> None:
        """Publish `count` events as fast as possible, until the log has acknowledged them."""
        for number in range(count):
            self._produce(topic, kinds[number % len(kinds)])
        self._flush()

    def publish_steadily(
        self, topic: str, kinds: Sequence[str], rate: float, seconds: float
    ) -> dict[str, float]:
        """Publish events at a steady rate; return the monotonic time of each in seconds."""
        published: dict[str, float] = {}
        start_s = time.monotonic()
        for number in range(int(rate * seconds)):
            due_s = start_s + number / rate
            while (left_s := due_s - time.monotonic()) > 0:
                self._producer.poll(left_s)
            kind = kinds[number % len(kinds)]
            published[self._produce(topic, kind)] = time.monotonic()
        self._flush()
        return published

    def _produce(self, topic: str, kind: str) -> str:
        event_id = f"evt_{self._count:010d}"
        self._count += 1
        body = f'{{"id":"{event_id}","type":"{kind}","data":"'
        body += "x" * (BODY_BYTES - len(body) - 2) + '"}'
        headers: list[tuple[str, str | bytes | None]] = [
            ("event-id", event_id.encode()),
            ("event-type", kind.encode()),
        ]
        self._producer.produce(
            topic, body.encode(), headers=headers, on_delivery=self._record_error
        )
        return event_id

    def _record_error(self, error: KafkaError | None, _: Message) -> None:
        if error is not None:
            self._errors.append(error)

    def _flush(self) -> None:
        left = self._producer.flush(FLUSH_S)
        assert left == 0, f"{left} events are not acknowledged"
        assert not self._errors, self._errors[0]


def latencies(
    published: Mapping[str, float], arrivals: Mapping[str, float], event_ids: Iterable[str]
) -> Latencies:
    """Return the latencies of these events."""
    taken_ms = [(arrivals[each] - published[each]) * 1e3 for each in event_ids]
    cuts = statistics.quantiles(taken_ms, n=100, method="inclusive")
    return Latencies(cuts[49], cuts[98], max(taken_ms))
