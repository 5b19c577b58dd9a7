"""Measures how soon the first event of a replay arrives, with one idle worker and with eight.

A complete service runs on SQLite, and another one on MariaDB. Short replays are requested one after
the other, and the ms from `POST /replays` until the receiver, in another process, has the first
event are measured: the median, and the 99th percentile. All settings have their defaults. On
MariaDB the statements are counted while nothing happens: what a further idle worker adds to them.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pymysql
from sqlalchemy import make_url

from app.cli.api_client import ApiClient
from app.cli.service import LocalService
from app.domain.options import EVENTS_PER_SECOND_MAX
from app.domain.states import TERMINAL
from app.domain.windows import format_time
from benchmarks.delivery_history import History
from benchmarks.mariadb_server import mariadb_server
from benchmarks.running_broker import until
from benchmarks.scale import Scale, median
from benchmarks.service_stage import service_stage
from benchmarks.table import Baseline, Line, at_most
from benchmarks.timing_receiver import TimingReceiver, timing_receiver

WORKERS: Final = (1, 8)
RECORDS: Final = 20_000
WINDOW_EVENTS: Final = 1_000
EVENTS: Final = 50
"""The events of a replay: the first ones of the window."""

WARM_UP: Final = 3
"""The first replays connect the clients of API and worker."""

PAUSE_S: Final = 0.3
"""So that each replay finds the workers idle."""

FIRST_MS_MAX: Final = 20.0


class Started(NamedTuple):
    """The ms to the first event of each replay, and the statements of an idle minute."""

    first_ms: list[float]
    statements: float | None


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure both databases, with each number of workers."""
    lines: list[Line] = []
    with timing_receiver() as receiver:
        lines += _lines("SQLite", {n: _measure(scale, folder, receiver, n) for n in WORKERS})
        started = {n: _measure_on_mariadb(scale, folder, receiver, n) for n in WORKERS}
        lines += _lines("MariaDB", started)
    few, many = (started[n].statements for n in WORKERS)
    assert few is not None
    assert many is not None
    further = (many - few) / (WORKERS[1] - WORKERS[0])
    return [*lines, Line("MariaDB, a further idle worker", further, "queries/min")]


def _measure_on_mariadb(
    scale: Scale, folder: Path, receiver: TimingReceiver, workers: int
) -> Started:
    data_dir = folder / f"start-mariadb-{workers}"
    data_dir.mkdir()
    with mariadb_server(data_dir) as url:
        return _measure(scale, folder, receiver, workers, url)


def _measure(
    scale: Scale, folder: Path, receiver: TimingReceiver, workers: int, url: str | None = None
) -> Started:
    settings = {} if url is None else {"database": url}
    with service_stage(folder, **settings) as stage, ExitStack() as running:
        webhook = stage.enabled_webhook(receiver.url)
        history = History.until_now(webhook.id, stage.settings.partitions, RECORDS, WINDOW_EVENTS)
        # Before the live path starts, which would deliver these events.
        stage.load(history)
        service = LocalService(stage.settings, stage.broker.bootstrap_servers, _ignore)
        running.enter_context(service)
        for _ in range(workers - 1):
            running.enter_context(stage.process("worker"))
        client = running.enter_context(ApiClient(service.api_url, service.operator_key))
        for _ in range(WARM_UP):
            _replay(client, history, receiver)
        first_ms = [_replay(client, history, receiver) for _ in range(scale.short_replays)]
        statements = None if url is None else _statements_per_minute(url, scale.idle_s)
        return Started(first_ms, statements)


def _ignore(_line: str) -> None:
    """Drop a line of a process's output."""


def _replay(client: ApiClient, history: History, receiver: TimingReceiver) -> float:
    """Replay the window; return the ms to the first event."""
    window = history.window_of(EVENTS)
    times = format_time(window.from_ms), format_time(window.to_ms)
    time.sleep(PAUSE_S)
    start_s = time.monotonic()
    rate = EVENTS_PER_SECOND_MAX
    job = client.create_replay(history.webhook_id, *times, maxEventsPerSecond=rate)
    until(lambda: client.replay(job["id"])["state"] in TERMINAL, f"{job['id']} ends", period_s=0.05)
    report = receiver.report()
    assert (report.posts, report.event_ids) == (EVENTS, EVENTS), report
    return (report.first_s - start_s) * 1e3


def _statements_per_minute(url: str, seconds: float) -> float:
    with _counter(url) as count:
        before, start_s = count(), time.monotonic()
        time.sleep(seconds)
        # The second count is itself a statement.
        return (count() - before - 1) * 60 / (time.monotonic() - start_s)


@contextmanager
def _counter(url: str) -> Iterator["_Count"]:
    address = make_url(url)
    assert address.host is not None
    assert address.port is not None
    with (
        closing(pymysql.connect(host=address.host, port=address.port, user="root")) as connection,
        connection.cursor() as cursor,
    ):
        yield _Count(cursor)


class _Count(NamedTuple):
    """Counts the statements that a server has executed."""

    cursor: "pymysql.cursors.Cursor"

    def __call__(self) -> int:
        self.cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
        row = self.cursor.fetchone()
        assert row is not None
        return int(row[1])


def _lines(database: str, started: dict[int, Started]) -> list[Line]:
    lines: list[Line] = []
    first = Baseline("1 worker", median(started[WORKERS[0]].first_ms))
    for workers, found in started.items():
        name = f"{database}, {workers} idle worker{'s' if workers > 1 else ''}"
        baseline = None if workers == WORKERS[0] else first
        at = median(found.first_ms)
        lines.append(Line(f"{name}, median", at, "ms", baseline, at_most(FIRST_MS_MAX)))
        lines.append(Line("  99th percentile", _percentile_99(found.first_ms), "ms"))
    return lines


def _percentile_99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]
