"""Measures the peak memory of a worker process that runs its default number of replays, in MB.

Each replay reads a different partition, so that each has a reader, a backlog and a cache of hashes;
the caches are full long before the end. The figure is the peak resident memory of the whole process
(Linux: `VmHWM`). The baseline is the limit of 200 MB.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psutil

from app.domain.model import NewReplay, Replay
from app.domain.options import EVENTS_PER_SECOND_MAX, ReplayOptions
from benchmarks.delivery_history import History
from benchmarks.running_broker import until
from benchmarks.scale import Scale
from benchmarks.service_stage import ServiceStage, service_stage
from benchmarks.table import Baseline, Line, at_most
from benchmarks.timing_receiver import timing_receiver

BATCH_EVENTS: Final = 100
"""One event per request would need the same memory for ten times as long."""

DEADLINE_S: Final = 600.0
MB: Final = 1e6
MEMORY_MB_MAX: Final = 200.0


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure one worker with all of its replays; once, since memory hardly varies."""
    with ExitStack() as stack:
        stage = stack.enter_context(service_stage(folder))
        receiver = stack.enter_context(timing_receiver())
        count = stage.settings.jobs_per_worker
        histories = _load(stage, [f"{receiver.blind_url}/{n}" for n in range(count)], scale)
        worker = stack.enter_context(stage.process("worker")).process
        idle_mb = peak_mb(worker)
        replays = [_create(stage, history) for history in histories]
        _wait_for_all(stage, replays, scale.memory_events)
        return _lines(idle_mb, peak_mb(worker), count, scale.memory_events)


def peak_mb(process: psutil.Process) -> float:
    """Return the peak resident memory of a process, in units of 10**6 bytes."""
    for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1_024 / MB
    raise AssertionError(f"no VmHWM for process {process.pid}")


def _load(stage: ServiceStage, urls: Sequence[str], scale: Scale) -> list[History]:
    events, partitions = scale.memory_events, stage.settings.partitions
    histories = [
        History.until_now(webhook.id, partitions, events, events, share=1)
        for webhook in stage.webhooks_in_separate_partitions(urls)
    ]
    for history in histories:
        stage.load(history)
    return histories


def _create(stage: ServiceStage, history: History) -> Replay:
    options = ReplayOptions(max_events_per_second=EVENTS_PER_SECOND_MAX, batch_size=BATCH_EVENTS)
    window = history.window_of(history.events)
    return stage.create_replay(NewReplay(history.webhook_id, window, options))


def _wait_for_all(stage: ServiceStage, replays: Sequence[Replay], events: int) -> None:
    until(
        lambda: all(stage.is_over(each, events) for each in replays),
        "all replays are completed",
        period_s=0.2,
        deadline_s=DEADLINE_S,
    )


def _lines(idle_mb: float, most_mb: float, count: int, events: int) -> list[Line]:
    name = f"{count} replays of {events:,} events, peak"
    return [
        Line("idle", idle_mb, "MB"),
        Line(name, most_mb, "MB", Baseline("limit", MEMORY_MB_MAX), at_most(MEMORY_MB_MAX)),
    ]
