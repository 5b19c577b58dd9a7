"""Metrics of a worker process."""

from collections.abc import Callable
from dataclasses import astuple, fields
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from app.domain.model import Counts
from app.log.metrics import LogMetrics
from app.log.topics import DELIVERY_LOG
from app.webhooks.metrics import DeliveryMetrics
from logbroker.metrics_http import MetricsAccess, serve_metrics

JOB_RESULTS: Final = (
    "completed",
    "completed_with_failures",
    "failed",
    "postponed",
    "released",
    "yielded",
    "stopped",
    "lost",
    "abandoned",
)
"""How a worker's job on a replay can end."""


class WorkerMetrics:
    """Metrics of one worker process; exposed only after `serve`."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.deliveries = DeliveryMetrics(self.registry)
        self.log = LogMetrics(self.registry, DELIVERY_LOG)
        self._events = Counter(
            "rewind_worker_events",
            "Records below stored checkpoints, by outcome.",
            ["outcome"],
            registry=self.registry,
        )
        self._jobs = Counter(
            "rewind_worker_jobs",
            "Jobs that ended in this worker, by result.",
            ["how"],
            registry=self.registry,
        )
        for how in JOB_RESULTS:
            self._jobs.labels(how)
        self.running = Gauge(
            "rewind_worker_jobs_running",
            "Replays that this worker runs.",
            registry=self.registry,
        )
        self._waiting = Gauge(
            "rewind_worker_jobs_waiting",
            "Replays of these that wait most of their time, and take no slot.",
            registry=self.registry,
        )
        self._lag = Gauge(
            "rewind_worker_lag_records",
            "Offsets between the checkpoints and the ends of this worker's replays.",
            registry=self.registry,
        )
        self._heartbeats = Counter(
            "rewind_worker_heartbeats",
            "Heartbeats; a missed one got no response from the database.",
            ["result"],
            registry=self.registry,
        )
        self._notices = Counter(
            "rewind_worker_notices",
            "Attempts to notify a webhook of the end of its replay, by result.",
            ["result"],
            registry=self.registry,
        )
        self._account_notices = Counter(
            "rewind_worker_account_notices",
            "Attempts to send a notice to an endpoint of its account, by result.",
            ["result"],
            registry=self.registry,
        )
        self._outcomes_lost = Counter(
            "rewind_worker_outcomes_lost_records",
            "Records for `replay_outcomes` that the log did not acknowledge in time.",
            registry=self.registry,
        )

    def serve(self, host: str, port: int, access: MetricsAccess) -> None:
        """Expose the metrics over HTTP, from separate threads."""
        serve_metrics(self.registry, host, port, access)

    def watch_waiting(self, waiting: Callable[[], int]) -> None:
        """Read the number of waiting replays from `waiting` at each scrape."""
        self._waiting.set_function(waiting)

    def watch_lag(self, lag: Callable[[], int]) -> None:
        """Read the lag from `lag` at each scrape."""
        self._lag.set_function(lag)

    def count_events(self, before: Counts, after: Counts) -> None:
        """Count the records between two checkpoints of one replay."""
        for field, old, new in zip(fields(Counts), astuple(before), astuple(after), strict=True):
            self._events.labels(field.name).inc(new - old)

    def count_job(self, how: str) -> None:
        """Count a job that ended."""
        self._jobs.labels(how).inc()

    def count_heartbeat(self, is_sent: bool) -> None:
        """Count a heartbeat; one that is not sent got no response from the database."""
        self._heartbeats.labels("sent" if is_sent else "missed").inc()

    def count_lost_outcomes(self, count: int) -> None:
        """Count records for `replay_outcomes` or `delivery_outcomes` that are dropped."""
        self._outcomes_lost.inc(count)

    def count_notice(self, is_sent: bool) -> None:
        """Count an attempt to notify a webhook."""
        self._notices.labels("sent" if is_sent else "failed").inc()

    def count_account_notice(self, is_sent: bool) -> None:
        """Count an attempt to send a notice of an account."""
        self._account_notices.labels("sent" if is_sent else "failed").inc()
