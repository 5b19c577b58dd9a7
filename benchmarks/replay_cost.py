"""What a replay costs, and that it is the window's cost and not the log's.

For each length of log a whole service stands: broker, API, live path and worker on SQLite. The
same window of the same webhook is replayed from each by turns, whole for the rate of delivery,
and its first part several times for the time from just before POST /replays until the receiver,
another process, has the first event. The worker looks for new replays every 20 ms instead of 200,
so that the wait for that look, a matter of luck, does not hide the rest. Replays may go as fast as
they can.
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
from benchmarks.delivery_history import History
from benchmarks.running_broker import until
from benchmarks.scale import Scale, median
from benchmarks.service_stage import service_stage
from benchmarks.table import Baseline, Line, Target, share_at_least, share_at_most
from benchmarks.timing_receiver import Report, TimingReceiver, timing_receiver

POLL_INTERVAL_S: Final = 0.02
SHORT_REPLAYS: Final = 8
"""In each round; a claim comes up to 20 ms late by chance, so one alone says little."""

SHORT_SHARE: Final = 20
"""A short replay takes the first one of so many parts of the window."""

SLOWER: Final = 1.2
"""A replay from a longer log may take a fifth more, and not more."""


class _Installation(NamedTuple):
    """One service and the history its log holds."""

    client: ApiClient
    history: History
    first_event_s: list[float]
    events_per_s: list[float]


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Replay the same window from logs of every length."""
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


@contextmanager
def _installation(
    folder: Path, receiver: TimingReceiver, records: int, events: int
) -> Iterator[_Installation]:
    heard: list[str] = []
    with service_stage(folder, poll_interval_s=str(POLL_INTERVAL_S)) as stage:
        webhook = stage.enabled_webhook(f"{receiver.url}/{records}")
        history = History.of(webhook.id, stage.settings.partitions, records, events)
        # Before there is a live path, which delivers what comes after it.
        stage.load(history)
        with (
            LocalService(stage.settings, stage.broker.bootstrap_servers, heard.append) as service,
            ApiClient(service.api_url, service.operator_key) as client,
        ):
            yield _Installation(client, history, [], [])


def _replay_short(installation: _Installation, receiver: TimingReceiver, events: int) -> None:
    """Replay the first part of the window again and again, for the time to the first event."""
    for _ in range(SHORT_REPLAYS):
        start_s = time.monotonic()
        report = _replay(installation, receiver, events)
        installation.first_event_s.append(report.first_s - start_s)


def _replay_whole(installation: _Installation, receiver: TimingReceiver, events: int) -> None:
    """Replay the window for the rate of delivery."""
    report = _replay(installation, receiver, events)
    installation.events_per_s.append(report.events_per_s)


def _replay(installation: _Installation, receiver: TimingReceiver, events: int) -> Report:
    """Replay the first `events` of the window, and hold what came against that number."""
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
        *_compared("POST to first event", first_ms, "ms", share_at_most(SLOWER)),
        *_compared("delivered", rates, "events/s", share_at_least(1 / SLOWER)),
    ]


def _compared(name: str, figures: dict[int, float], unit: str, target: Target) -> Iterator[Line]:
    """The figure of each log, the longer ones beside the shortest."""
    shortest = min(figures)
    baseline = Baseline(f"{shortest:,} records", figures[shortest])
    for records, figure in figures.items():
        line = Line(f"{name}, {records:,} records", figure, unit)
        yield line if records == shortest else line._replace(baseline=baseline, target=target)
