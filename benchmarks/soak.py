"""Measures whether the memory of any process grows under a steady load, in MB an hour.

Broker, API, live path and worker run for a long time. Each second, events come in through the API
for sixteen webhooks, one of which never responds; a page of deliveries and one of them are read,
and every half a minute a replay of the last minutes runs. The resident memory of each process
is sampled. The first third of the time is left out, in which caches fill; the figure is the slope
of a line through the other samples (least squares). Events are few: growth counts, not speed.
"""

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from app.cli.api_client import ApiClient
from app.domain.accounts import DEFAULT_ACCOUNT_NAME, Scope
from app.domain.model import Webhook, Window
from app.domain.windows import format_time
from benchmarks.scale import Scale
from benchmarks.service_stage import UNLIMITED, ServiceStage, service_stage
from benchmarks.table import Line, at_most
from benchmarks.timing_receiver import timing_receiver

WEBHOOKS: Final = 16
KINDS: Final = tuple(f"soak.{number}" for number in range(WEBHOOKS))
EVENTS_PER_SECOND: Final = 48
BODY_BYTES: Final = 200
SAMPLE_S: Final = 5.0
REPLAY_EVERY_S: Final = 30
REPLAYED_MS: Final = 120_000
PAGE: Final = 50
LEFT_OUT: Final = 1 / 3
MB: Final = 1e6
GROWTH_MB_MAX: Final = 1.0
HOUR_S: Final = 3_600.0

Sample = tuple[float, float]
"""Seconds since the begin, and resident memory in MB."""


class Soak(NamedTuple):
    """The processes by name, a client of the API, and the webhooks."""

    processes: Mapping[str, psutil.Process]
    client: ApiClient
    webhooks: Sequence[Webhook]
    """The first one has a receiver that never responds."""

    @property
    def answering(self) -> Sequence[Webhook]:
        """The webhooks whose receiver responds."""
        return self.webhooks[1:]


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Run the load for `scale.soak_s`, once."""
    with _soak(folder) as soak:
        samples = _run(soak, scale.soak_s)
    return [line for name, each in samples.items() for line in _lines(name, each)]


@contextmanager
def _soak(folder: Path) -> Iterator[Soak]:
    with ExitStack() as stack:
        stage = stack.enter_context(service_stage(folder, **UNLIMITED))
        receiver = stack.enter_context(timing_receiver())
        urls = [receiver.hanging_url, *(f"{receiver.blind_url}/{each}" for each in KINDS[1:])]
        webhooks = [_webhook(stage, url, kind) for url, kind in zip(urls, KINDS, strict=True)]
        _, key = stage.store.create_key(DEFAULT_ACCOUNT_NAME, Scope.OPERATOR, "bench")
        running = {
            name: stack.enter_context(stage.process(name)) for name in ("api", "live", "worker")
        }
        client = stack.enter_context(ApiClient(running["api"].address, key))
        processes = {name: each.process for name, each in running.items()}
        yield Soak({"broker": stage.broker.process, **processes}, client, webhooks)


def _webhook(stage: ServiceStage, url: str, kind: str) -> Webhook:
    webhook = stage.enabled_webhook(url)
    stage.add_rule(webhook, kind)
    return webhook


def _run(soak: Soak, seconds: float) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {name: [] for name in soak.processes}
    begin_s = time.monotonic()
    sampled_s, second = 0.0, 0
    while (now_s := time.monotonic() - begin_s) < seconds:
        if now_s < second:
            time.sleep(second - now_s)
        _load(soak, second)
        second += 1
        if now_s >= sampled_s:
            sampled_s += SAMPLE_S
            for name, process in soak.processes.items():
                samples[name].append((now_s, process.memory_info().rss / MB))
    return samples


def _load(soak: Soak, second: int) -> None:
    """Send the requests of one second."""
    client, webhook = soak.client, soak.webhooks[second % len(soak.webhooks)]
    first = second * EVENTS_PER_SECOND
    events = [_event(number) for number in range(first, first + EVENTS_PER_SECOND)]
    assert client.publish(b"\n".join(events)) == EVENTS_PER_SECOND
    for delivery in list(client.deliveries(webhook.id, PAGE))[:1]:
        client.delivery(delivery["id"])
    if second % REPLAY_EVERY_S == 0:
        webhook = soak.answering[second // REPLAY_EVERY_S % len(soak.answering)]
        now_ms = time.time_ns() // 1_000_000
        window = Window(now_ms - REPLAYED_MS, now_ms)
        client.create_replay(webhook.id, format_time(window.from_ms), format_time(window.to_ms))


def _event(number: int) -> bytes:
    data = {"text": "x" * BODY_BYTES}
    event = {"id": f"evt_{number}", "type": KINDS[number % len(KINDS)], "data": data}
    return json.dumps(event).encode()


def _lines(name: str, samples: Sequence[Sample]) -> Iterator[Line]:
    kept = samples[int(len(samples) * LEFT_OUT) :]
    yield Line(f"{name}, at the end", kept[-1][1], "MB")
    target = at_most(GROWTH_MB_MAX)
    mb_per_s, _ = statistics.linear_regression(*zip(*kept, strict=True))
    yield Line(f"{name}, growth", mb_per_s * HOUR_S, "MB/h", target=target)
