"""What a worker counts about itself."""

from collections.abc import Callable
from dataclasses import astuple, fields
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from app.domain.model import Counts
from app.webhooks.metrics import DeliveryMetrics

HOWS: Final = ("completed", "failed", "postponed", "released", "stopped", "lost", "abandoned")
"""The ways in which a replay leaves a worker's hands."""


class WorkerMetrics:
    """Counters of one worker process; shown only where `serve` was called."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.deliveries = DeliveryMetrics(self.registry)
        self._events = Counter(
            "rewind_worker_events",
            "Records that a checkpoint has passed, by what became of them.",
            ["outcome"],
            registry=self.registry,
        )
        self._jobs = Counter(
            "rewind_worker_jobs",
            "Replays that left this worker's hands, by how.",
            ["how"],
            registry=self.registry,
        )
        for how in HOWS:
            self._jobs.labels(how)
        self.running = Gauge(
            "rewind_worker_jobs_running",
            "Replays that this worker works on.",
            registry=self.registry,
        )
        self._lag = Gauge(
            "rewind_worker_lag_records",
            "Records that the replays of this worker have still to pass.",
            registry=self.registry,
        )
        self._heartbeats = Counter(
            "rewind_worker_heartbeats",
            "Heartbeats, by whether the database took them.",
            ["result"],
            registry=self.registry,
        )
        self._notices = Counter(
            "rewind_worker_notices",
            "Attempts to tell a webhook of the end of its replay, by result.",
            ["result"],
            registry=self.registry,
        )

        self._outcomes_lost = Counter(
            "rewind_worker_outcomes_lost_records",
            "Records for `replay_outcomes` that the log did not take in time.",
            registry=self.registry,
        )

    def serve(self, host: str, port: int) -> None:
        """Show the metrics over HTTP, from a thread of its own."""
        start_http_server(port, host, self.registry)

    def watch_lag(self, lag: Callable[[], int]) -> None:
        """Ask `lag` whenever somebody looks."""
        self._lag.set_function(lag)

    def count_events(self, before: Counts, after: Counts) -> None:
        """Count the records between two checkpoints of one replay."""
        for field, old, new in zip(fields(Counts), astuple(before), astuple(after), strict=True):
            self._events.labels(field.name).inc(new - old)

    def count_job(self, how: str) -> None:
        """Count a replay that is done with here."""
        self._jobs.labels(how).inc()

    def count_heartbeat(self, is_taken: bool) -> None:
        """Count a heartbeat; one that is not taken found no database."""
        self._heartbeats.labels("sent" if is_taken else "missed").inc()

    def count_lost_outcome(self) -> None:
        """Count a record for `replay_outcomes` that is given up."""
        self._outcomes_lost.inc()

    def count_notice(self, is_told: bool) -> None:
        """Count an attempt to tell of the end of a replay."""
        self._notices.labels("told" if is_told else "failed").inc()
