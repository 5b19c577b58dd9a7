"""Measures a replay, and that its cost depends on the window and not on the length of the log.

For each length of the log a complete service runs: broker, API, live path and worker on SQLite. The
same window is replayed from each in turn: the whole window for the events/s, and its first part
several times for the ms from `POST /replays` until the receiver, in another process, has the first
event. The baseline is the shortest log. The worker polls for new replays every 20 ms instead of
200, so that the random wait for a poll does not hide the rest. Replays have no rate limit.

Two further services have the same window at the end of the log, and before 100,000 records that
were published in the quarter of an hour after it, all indexed. The time is that from `POST
/replays` until the replay is COMPLETED.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from app.cli.api_client import ApiClient
from app.cli.service import LocalService
from app.domain.options import EVENTS_PER_SECOND_MAX
from app.domain.states import TERMINAL
from app.domain.windows import format_time
from benchmarks.delivery_history import SHARE, STEP_MS, History
from benchmarks.running_broker import until
from benchmarks.scale import Scale, median
from benchmarks.service_stage import service_stage
from benchmarks.table import Baseline, Line, Target, share_at_least, share_at_most
from benchmarks.timing_receiver import Report, TimingReceiver, timing_receiver

POLL_INTERVAL_S: Final = 0.02
SHORT_REPLAYS: Final = 8
"""Per round; a claim may take up to 20 ms longer by chance, so one replay is not enough."""

SHORT_SHARE: Final = 20
"""A short replay covers this fraction of the window."""

SLOWDOWN_MAX: Final = 1.2
"""A replay from a longer log may take up to a fifth more time."""

FOLLOWING_RECORDS: Final = 101_000
FOLLOWING_STEP_MS: Final = 9
"""So 100,000 of the following records are of the quarter of an hour after the window."""

FOLLOWING_COST_MAX: Final = 1.1


class _Installation(NamedTuple):
    """One service, the history in its log, and the results."""

    client: ApiClient
    history: History
    first_event_s: list[float]
    events_per_s: list[float]
    completed_s: list[float]


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Replay the same window from a log of each length, and with and without later records."""
    return [*_measure_lengths(scale, folder), *_measure_following(scale, folder)]


def _measure_lengths(scale: Scale, folder: Path) -> list[Line]:
    events = scale.replay_events
    with timing_receiver() as receiver, ExitStack() as stack:
        installations = [
            stack.enter_context(_installation(folder, receiver, records, events))
            for records in scale.replay_logs
        ]
        for _ in range(scale.rounds):
            for installation in installations:
                _replay_short(installation, receiver, events // SHORT_SHARE)
            for installation in installations:
                _replay_whole(installation, receiver, events)
        return _lines(installations)


def _measure_following(scale: Scale, folder: Path) -> Iterator[Line]:
    events = scale.replay_events
    window_records = events * SHARE
    with timing_receiver() as receiver, ExitStack() as stack:
        alone, followed = (
            stack.enter_context(
                _installation(folder, receiver, records, events, step_ms=FOLLOWING_STEP_MS)
            )
            for records in (window_records, window_records + 2 * FOLLOWING_RECORDS)
        )
        for _ in range(scale.rounds):
            for installation in (alone, followed):
                _replay_whole(installation, receiver, events)
    baseline = Baseline("nothing after the window", median(alone.completed_s))
    yield Line("completed, the window ends the log", baseline.figure, "s")
    figure = median(followed.completed_s)
    target = share_at_most(FOLLOWING_COST_MAX)
    yield Line("completed, 100,000 records after the window", figure, "s", baseline, target)


@contextmanager
def _installation(
    folder: Path, receiver: TimingReceiver, records: int, events: int, step_ms: int = STEP_MS
) -> Iterator[_Installation]:
    """A service with a log, whose records are all indexed, as they are in time in a running one."""
    output: list[str] = []
    with service_stage(folder, poll_interval_s=str(POLL_INTERVAL_S)) as stage:
        webhook = stage.enabled_webhook(f"{receiver.url}/{records}")
        history = History.until_now(
            webhook.id, stage.settings.partitions, records, events, step_ms=step_ms
        )
        # Before the live path starts, which would deliver these events.
        stage.load(history)
        stage.index_all()
        with (
            LocalService(stage.settings, stage.broker.bootstrap_servers, output.append) as service,
            ApiClient(service.api_url, service.operator_key) as client,
        ):
            yield _Installation(client, history, [], [], [])


def _replay_short(installation: _Installation, receiver: TimingReceiver, events: int) -> None:
    """Replay the first part of the window repeatedly, for the time to the first event."""
    for _ in range(SHORT_REPLAYS):
        start_s = time.monotonic()
        report = _replay(installation, receiver, events)
        installation.first_event_s.append(report.first_s - start_s)


def _replay_whole(installation: _Installation, receiver: TimingReceiver, events: int) -> None:
    """Replay the window for the rate of delivery and the time to the end."""
    start_s = time.monotonic()
    report = _replay(installation, receiver, events)
    installation.completed_s.append(time.monotonic() - start_s)
    installation.events_per_s.append(report.events_per_s)


def _replay(installation: _Installation, receiver: TimingReceiver, events: int) -> Report:
    """Replay the first `events` of the window, and check the number of received events."""
    client, history = installation.client, installation.history
    window = history.window_of(events)
    job = client.create_replay(
        history.webhook_id,
        format_time(window.from_ms),
        format_time(window.to_ms),
        maxEventsPerSecond=EVENTS_PER_SECOND_MAX,
    )
    until(lambda: client.replay(job["id"])["state"] in TERMINAL, f"{job['id']} ends", period_s=0.05)
    report = receiver.report()
    assert (report.posts, report.event_ids) == (events, events), report
    return report


def _lines(installations: Sequence[_Installation]) -> list[Line]:
    first_ms = {each.history.records: median(each.first_event_s) * 1e3 for each in installations}
    rates = {each.history.records: median(each.events_per_s) for each in installations}
    return [
        *_compared("POST to first event", first_ms, "ms", share_at_most(SLOWDOWN_MAX)),
        *_compared("delivered", rates, "events/s", share_at_least(1 / SLOWDOWN_MAX)),
    ]


def _compared(name: str, figures: dict[int, float], unit: str, target: Target) -> Iterator[Line]:
    """Yield the figure of each log, the longer ones with the shortest as baseline."""
    shortest = min(figures)
    baseline = Baseline(f"{shortest:,} records", figures[shortest])
    for records, figure in figures.items():
        line = Line(f"{name}, {records:,} records", figure, unit)
        yield line if records == shortest else line._replace(baseline=baseline, target=target)
