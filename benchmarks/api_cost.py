"""Measures requests/s and CPU of the API: authentication and rate limit, lookups, publishing.

The baseline of requests is `/healthz`, which needs no key and looks up nothing. A request for an
unknown path is rejected after authentication, so it shows the cost of key, rate limit and problem
document. A request for a replay adds a lookup in the database, and one that publishes a single
event the way to the log and back. The baseline of publishing many, in events/s, is a bare producer
with the same settings and prepared records; the API parses, validates and encodes each event, and
responds once the log has acknowledged all events of a request.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from app.domain.accounts import DEFAULT_ACCOUNT_NAME, Scope
from app.domain.model import NewReplay, Window
from benchmarks.http_load import HttpRequest, encode, send_repeatedly
from benchmarks.live_load import EventSource
from benchmarks.running_broker import cpu_s
from benchmarks.running_process import RunningProcess
from benchmarks.scale import Scale, median
from benchmarks.service_stage import UNLIMITED, service_stage
from benchmarks.table import Baseline, Line, at_most, share_at_least

EVENTS_IN_REQUEST: Final = 500
BODY_BYTES: Final = 200
CONNECTIONS: Final = 4
SINGLE_CONNECTIONS: Final = 16
BARE_TOPIC: Final = "bare_events"
KINDS: Final = ("bench.made",)
"""Requests per minute of a key: high enough that no request is rejected."""

HEALTH: Final = "/healthz, no key"
UNKNOWN_PATH: Final = "unknown path, with a key"
REPLAY: Final = "GET /replays/{id}, with a key"
SINGLE_1: Final = "POST /events, 1 event, 1 connection"
SINGLE: Final = f"POST /events, 1 event, {SINGLE_CONNECTIONS} connections"
PUBLISH_1: Final = f"POST /events, {EVENTS_IN_REQUEST} each, 1 connection"
PUBLISH: Final = f"POST /events, {EVENTS_IN_REQUEST} each, {CONNECTIONS} connections"

REQUEST_CPU_US_MAX: Final = 450
"""Of a request that reads a replay, or publishes a single event."""

PUBLISHED_SHARE_MIN: Final = 0.3


class Case(NamedTuple):
    """A request that is sent repeatedly; `events` is the number of events in it."""

    name: str
    request: HttpRequest
    connections: int = 1
    events: int = 0


class Measured(NamedTuple):
    """One case in one round; CPU of the API per request, or per event."""

    per_s: float
    cpu_us: float


class Bench(NamedTuple):
    """The running API, an event source, and the cases."""

    api: RunningProcess
    source: EventSource
    cases: list[Case]


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure every case in each round."""
    with _bench(folder) as bench:
        rounds: dict[str, list[Measured]] = {case.name: [] for case in bench.cases}
        bare: list[float] = []
        for _ in range(scale.rounds):
            for case in bench.cases:
                rounds[case.name].append(_measure(bench, case, scale.webhook_s))
            bare.append(_produce(bench.source, scale.single_events))
        return list(_lines(rounds, median(bare)))


@contextmanager
def _bench(folder: Path) -> Iterator[Bench]:
    with service_stage(folder, **UNLIMITED) as stage:
        _, key = stage.store.create_key(DEFAULT_ACCOUNT_NAME, Scope.OPERATOR, "bench")
        webhook = stage.enabled_webhook("http://127.0.0.1:9/")
        now_ms = time.time_ns() // 1_000_000
        window = Window(now_ms - 3_600_000, now_ms)
        replay = stage.create_replay(NewReplay(webhook.id, window))
        stage.broker.create_topic(BARE_TOPIC, stage.settings.partitions)
        with stage.process("api") as api:
            source = EventSource(stage.broker.bootstrap_servers)
            yield Bench(api, source, _cases(key, replay.id))


def _cases(key: str, replay_id: str) -> list[Case]:
    single = _publishing(key, _event(0, _time_text()), "application/json")
    publish = _publishing(key, _ndjson(), "application/x-ndjson")
    return [
        Case(HEALTH, encode("GET", "/healthz", status=200)),
        Case(UNKNOWN_PATH, encode("GET", "/no-such-path", key=key, status=404)),
        Case(REPLAY, encode("GET", f"/replays/{replay_id}", key=key, status=200)),
        Case(SINGLE_1, single),
        Case(SINGLE, single, SINGLE_CONNECTIONS),
        Case(PUBLISH_1, publish, 1, EVENTS_IN_REQUEST),
        Case(PUBLISH, publish, CONNECTIONS, EVENTS_IN_REQUEST),
    ]


def _publishing(key: str, body: bytes, media_type: str) -> HttpRequest:
    return encode("POST", "/events", key=key, body=body, media_type=media_type, status=202)


def _time_text() -> str:
    return datetime.now(UTC).isoformat()


def _ndjson() -> bytes:
    time_text = _time_text()
    return b"\n".join(_event(number, time_text) for number in range(EVENTS_IN_REQUEST))


def _event(number: int, time_text: str) -> bytes:
    event = {"id": f"evt_{number:010d}", "type": KINDS[0], "time": time_text, "data": {"text": ""}}
    event["data"] = {"text": "x" * (BODY_BYTES - len(json.dumps(event)))}
    return json.dumps(event).encode()


def _measure(bench: Bench, case: Case, seconds: float) -> Measured:
    before_s = cpu_s(bench.api.process)
    load = send_repeatedly(bench.api.address, case.request, case.connections, seconds)
    each = case.events or 1
    spent_s = cpu_s(bench.api.process) - before_s
    return Measured(load.per_s * each, spent_s * 1e6 / (load.responses * each))


def _produce(source: EventSource, events: int) -> float:
    """Return the events/s of a bare producer, until the log has acknowledged all events."""
    start_s = time.perf_counter()
    source.publish(BARE_TOPIC, KINDS, events)
    return events / (time.perf_counter() - start_s)


def _lines(rounds: dict[str, list[Measured]], bare: float) -> Iterator[Line]:
    health = Baseline(HEALTH, median(each.per_s for each in rounds[HEALTH]))
    for name in (HEALTH, UNKNOWN_PATH, REPLAY, SINGLE_1, SINGLE):
        per_s = median(each.per_s for each in rounds[name])
        yield Line(name, per_s, "req/s", None if name == HEALTH else health)
        target = at_most(REQUEST_CPU_US_MAX) if name in (REPLAY, SINGLE) else None
        cpu_us = median(each.cpu_us for each in rounds[name])
        yield Line("  API CPU per request", cpu_us, "us", target=target)
    for name in (PUBLISH_1, PUBLISH):
        rate = median(each.per_s for each in rounds[name])
        target = share_at_least(PUBLISHED_SHARE_MIN) if name == PUBLISH else None
        yield Line(name, rate, "events/s", Baseline("bare producer", bare), target)
    cpu_us = median(each.cpu_us for each in rounds[PUBLISH])
    yield Line("  API CPU per event", cpu_us, "us")
