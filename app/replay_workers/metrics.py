"""What a worker counts about itself."""

from dataclasses import astuple, fields

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from app.replay.model import Counts


class WorkerMetrics:
    """Counters of one worker process; shown only where `serve` was called."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._events = Counter(
            "rewind_worker_events",
            "Records that a checkpoint has passed, by what became of them.",
            ["outcome"],
            registry=self._registry,
        )
        self._jobs = Counter(
            "rewind_worker_jobs",
            "Replays that left this worker's hands, by how.",
            ["how"],
            registry=self._registry,
        )
        self.running = Gauge(
            "rewind_worker_jobs_running",
            "Replays that this worker works on.",
            registry=self._registry,
        )

    def serve(self, host: str, port: int) -> None:
        """Show the metrics over HTTP, from a thread of its own."""
        start_http_server(port, host, self._registry)

    def count_events(self, before: Counts, after: Counts) -> None:
        """Count the records between two checkpoints of one replay."""
        for field, old, new in zip(fields(Counts), astuple(before), astuple(after), strict=True):
            self._events.labels(field.name).inc(new - old)

    def count_job(self, how: str) -> None:
        """Count a replay that is done with here."""
        self._jobs.labels(how).inc()
