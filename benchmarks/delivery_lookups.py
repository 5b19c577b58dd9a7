"""Measures look-ups of deliveries, and that their cost does not depend on the length of the log.

For each length of the log a complete service runs: broker, API, live path and worker on SQLite. One
webhook has all deliveries, of the last 20 hours; one in a thousand has failed. The requests are
those of `rewind deliveries list` and `rewind events get`, each from its begin to the end of the
response: the first page of 50 deliveries, and an event by its id, of any age. The baseline is the
shortest log.
"""

import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from confluent_kafka import Consumer, Producer, TopicPartition

from app.cli.api_client import ApiClient
from app.cli.service import LocalService
from app.domain.delivery import LiveOutcome
from app.log.outcomes import DeliveryOutcome, encode_outcome
from app.log.topics import DELIVERERS, DELIVERY_LOG, DELIVERY_OUTCOMES
from benchmarks.scale import Scale, median
from benchmarks.service_stage import UNLIMITED, ServiceStage, service_stage
from benchmarks.table import Baseline, Line, Target, at_most, share_at_most

T = TypeVar("T")

REQUESTS: Final = 100
"""Of each kind per round."""

PAGE: Final = 50
QUEUED_MAX: Final = 50_000
"""Records that wait in the producer, which holds twice as many."""

BODY_BYTES: Final = 200
FAILED_EVERY: Final = 1_000
SPAN_MS: Final = 20 * 3_600_000
URL: Final = "http://127.0.0.1:9/"
"""Nothing is sent to it: all deliveries are settled."""

PAGE_MS_MAX: Final = 100
EVENT_MS_MAX: Final = 200
SLOWDOWN_MAX: Final = 1.5


class _Installation(NamedTuple):
    """One service with `deliveries` of a webhook in its log, and the durations of requests."""

    client: ApiClient
    webhook_id: str
    deliveries: int
    pages_ms: list[float]
    events_ms: list[float]


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Look up deliveries in a log of each length."""
    with ExitStack() as stack:
        installations = [
            stack.enter_context(_installation(folder, deliveries))
            for deliveries in scale.delivery_logs
        ]
        for _ in range(scale.rounds):
            for installation in installations:
                _request_all(installation)
    pages = {each.deliveries: each.pages_ms for each in installations}
    events = {each.deliveries: each.events_ms for each in installations}
    return [
        *_lines("a page of 50", pages, at_most(PAGE_MS_MAX)),
        *_lines("event by id", events, at_most(EVENT_MS_MAX)),
    ]


@contextmanager
def _installation(folder: Path, deliveries: int) -> Iterator[_Installation]:
    output: list[str] = []
    with service_stage(folder, **UNLIMITED) as stage:
        webhook = stage.enabled_webhook(URL)
        # Before the live path starts, which would deliver these events.
        _write(stage, webhook.id, deliveries)
        stage.index_all()
        with (
            LocalService(stage.settings, stage.broker.bootstrap_servers, output.append) as service,
            ApiClient(service.api_url, service.operator_key) as client,
        ):
            yield _Installation(client, webhook.id, deliveries, [], [])


def _write(stage: ServiceStage, webhook_id: str, deliveries: int) -> None:
    """Write deliveries and their outcomes, and commit that all are settled."""
    servers, origin = stage.broker.bootstrap_servers, stage.settings.origin
    partition = _partition(stage, webhook_id)
    producer = Producer(
        {"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "snappy"}
    )
    begin_ms = time.time_ns() // 1_000_000 - SPAN_MS
    for number in range(deliveries):
        event_id = f"evt_{number}"
        time_ms = begin_ms + number * SPAN_MS // deliveries
        headers = {"event-id": event_id, "event-type": "follow.created", "origin": origin}
        body = json.dumps({"id": event_id, "data": "x" * BODY_BYTES}).encode()
        outcome = encode_outcome(_outcome(partition, number, event_id, time_ms))
        for topic, value in ((DELIVERY_LOG, body), (DELIVERY_OUTCOMES, outcome)):
            producer.produce(
                topic, value, webhook_id, partition, timestamp=time_ms, headers=[*headers.items()]
            )
        while len(producer) > QUEUED_MAX:
            producer.poll(0.01)
    assert producer.flush() == 0
    for topic in (DELIVERY_LOG, DELIVERY_OUTCOMES):
        stage.broker.wait_for_end(topic, deliveries, partition)
    with closing(Consumer({"bootstrap.servers": servers, "group.id": DELIVERERS})) as consumer:
        settled = [TopicPartition(DELIVERY_LOG, partition, deliveries)]
        consumer.commit(offsets=settled, asynchronous=False)


def _partition(stage: ServiceStage, webhook_id: str) -> int:
    return stage.partition_of(stage.store.webhook(webhook_id))


def _outcome(partition: int, number: int, event_id: str, time_ms: int) -> DeliveryOutcome:
    has_failed = number % FAILED_EVERY == 0
    return DeliveryOutcome(
        partition,
        number,
        event_id,
        LiveOutcome.FAILED if has_failed else LiveOutcome.DELIVERED,
        1,
        503 if has_failed else 204,
        "HTTP 503" if has_failed else None,
        time_ms + 30,
        number,
        12.5,
    )


def _request_all(installation: _Installation) -> None:
    client, webhook_id = installation.client, installation.webhook_id
    chosen = random.Random(installation.deliveries + len(installation.pages_ms))
    for _ in range(REQUESTS):
        page, took_ms = _timed(lambda: list(client.deliveries(webhook_id, PAGE)))
        assert len(page) == PAGE, len(page)
        installation.pages_ms.append(took_ms)
        event_id = f"evt_{chosen.randrange(installation.deliveries)}"
        event, took_ms = _timed(partial(client.event, event_id))
        (delivery,) = event["deliveries"]
        assert delivery["status"] in ("succeeded", "failed"), event
        installation.events_ms.append(took_ms)


def _timed(request: Callable[[], T]) -> tuple[T, float]:
    begin_s = time.perf_counter()
    return request(), 1e3 * (time.perf_counter() - begin_s)


def _lines(name: str, samples: dict[int, list[float]], target: Target) -> Iterator[Line]:
    """Yield p50 of each log, the longer ones with the shortest as baseline, and p99."""
    shortest = min(samples)
    baseline = Baseline(f"{shortest:,} deliveries", median(samples[shortest]))
    for deliveries, took_ms in samples.items():
        line = Line(f"{name}, {deliveries:,} deliveries, p50", median(took_ms), "ms")
        if deliveries != shortest:
            line = line._replace(baseline=baseline, target=share_at_most(SLOWDOWN_MAX))
        yield line
        p99_ms = _percentile(took_ms, 0.99)
        yield Line(f"{name}, {deliveries:,} deliveries, p99", p99_ms, "ms", target=target)


def _percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(len(values) * share)]
