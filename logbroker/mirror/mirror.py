"""Copies topics from one cluster to another until it is stopped."""

import logging
import secrets
import socket
import time
from collections.abc import Callable
from threading import Event
from typing import Final, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from logbroker.client.received_counter import ReceivedCounter
from logbroker.mirror.clients import (
    CLIENT_LOG,
    admin_settings,
    consumer_settings,
    error_callback,
    producer_settings,
)
from logbroker.mirror.copy_loop import CopyLoop
from logbroker.mirror.domain.partitions import PartitionBackoff
from logbroker.mirror.domain.provenance import Provenance
from logbroker.mirror.domain.topic_selection import TopicSelection
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.received_reports import MirrorReports
from logbroker.mirror.sender import CopyFailed, Sender
from logbroker.mirror.settings import Cluster, MirrorSettings
from logbroker.mirror.source_consumer import SourceConsumer
from logbroker.mirror.topics import CopyPlan, TopicAligner

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

RETRY_S: Final = 1.0
CHANGED_S: Final = 0.1
"""Time until the next request about topics that were just changed."""

BACKOFF_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0


class Mirror:
    """One mirror process; several with the same group share the partitions.

    `on_ready` is called once, after the group has assigned partitions for the first time.
    """

    def __init__(self, settings: MirrorSettings, on_ready: Callable[[], None]) -> None:
        self.counts = MirrorCounts()
        self._settings = settings
        self._on_ready: Callable[[], None] | None = on_ready
        self._stopping = Event()
        self._backoff = PartitionBackoff()
        self._consumer_name = f"{socket.gethostname()}/{secrets.token_hex(4)}"
        self._aligner = TopicAligner(
            self._admin("source", settings.source),
            self._admin("destination", settings.destination),
            TopicSelection(settings.topics),
        )

    def stop(self) -> None:
        """End `run` soon; safe on any thread and in a signal handler."""
        self._stopping.set()

    def run(self) -> None:
        """Copy until stopped, and retry after every failure that can be cured elsewhere.

        Raises:
            ConfigurationError: the two clusters, or their topics, cannot be mirrored as they are.
        """
        ids = self._retry_until_stopped(self._aligner.cluster_ids)
        if ids is None:
            return
        self._log_route(*ids)
        tier = f"mirror@{self._settings.origin or ids[0]}"
        counter = ReceivedCounter(tier, self._consumer_name)
        reports = MirrorReports(self._settings.source, counter, self.counts)
        try:
            self._copy(*ids, reports)
        finally:
            reports.close()

    def _copy(self, source_id: str, destination_id: str, reports: MirrorReports) -> None:
        backoff_s = BACKOFF_S
        while not self._stopping.is_set():
            copied = self._copied
            try:
                self._run_loop(source_id, destination_id, reports)
            except CopyFailed as failure:
                self.counts.record_error(failure.reason)
                self.counts.restarts += 1
                is_moving = self._pause_partition(failure) or self._copied > copied
                backoff_s = BACKOFF_S if is_moving else min(backoff_s * 2, BACKOFF_MAX_S)
                _log.error("restarting in_s=%s reason=%s", backoff_s, failure)
                self._stopping.wait(backoff_s)

    def _log_route(self, source_id: str, destination_id: str) -> None:
        settings = self._settings
        _log.info(
            "mirroring topics=%s from=%s from_cluster=%s to=%s to_cluster=%s origin=%s group=%s",
            ",".join(settings.topics),
            *(settings.source.servers, source_id),
            *(settings.destination.servers, destination_id),
            settings.origin,
            self._group(destination_id),
        )

    def _group(self, destination_id: str) -> str:
        return self._settings.group or f"logbroker-mirror-{destination_id}"

    def _pause_partition(self, failure: CopyFailed) -> bool:
        """Pause the failed partition so that the others continue; return whether there is one."""
        copy = failure.copy
        if copy is None:
            return False
        tp = copy.topic, copy.partition
        has_moved = copy.acknowledged_s > 0
        pause_s = self._backoff.pause(tp, time.monotonic(), has_moved=has_moved)
        _log.error("partition paused topic=%s partition=%s for_s=%s", *tp, pause_s)
        return True

    def _run_loop(self, source_id: str, destination_id: str, reports: MirrorReports) -> None:
        plan = self._align()
        if plan is None:
            return
        settings, counts = self._settings, self.counts
        sender = Sender(
            producer_settings(
                settings.destination.servers,
                settings.destination.properties,
                compression=settings.compression,
                batch_bytes=plan.batch_bytes,
            )
            | {"error_cb": error_callback("destination", counts.record_error)},
            Provenance(source_id, destination_id, settings.origin),
            counts,
            reports.counter.count_message,
        )
        group = self._group(destination_id)
        source = SourceConsumer(
            consumer_settings(settings.source.servers, group, settings.source.properties),
            {**settings.source.properties, "bootstrap.servers": settings.source.servers},
            plan.ids,
            counts,
            self._stopping,
        )
        CopyLoop(
            source,
            plan,
            sender,
            reports,
            counts,
            self._backoff,
            self._stopping,
            self._record_assignment,
        ).run()

    def _align(self) -> CopyPlan | None:
        """Return the plan once the topics of both clusters agree; None if stopped before."""
        while not self._stopping.is_set():
            plan = self._retry_until_stopped(self._aligner.align)
            if plan is not None:
                return plan
            self._stopping.wait(CHANGED_S)
        return None

    def _retry_until_stopped(self, request: Callable[[], T]) -> T | None:
        """Return the answer, however long a cluster is down; None if stopped before."""
        logged = ""
        while not self._stopping.is_set():
            try:
                return request()
            except KafkaException as refusal:
                error = refusal.args[0]
                self.counts.record_error(error.name())
                if error.str() != logged:
                    logged = error.str()
                    _log.warning("waiting for a cluster reason=%s", logged)
                # The cause, such as a wrong password, is only reported to the callbacks.
                self._aligner.poll_errors()
                self._stopping.wait(RETRY_S)
        return None

    def _record_assignment(self) -> None:
        if self._on_ready is not None:
            self._on_ready()
            self._on_ready = None

    @property
    def _copied(self) -> int:
        return sum(each.records for each in self.counts.topics.values())

    def _admin(self, name: str, cluster: Cluster) -> AdminClient:
        settings = admin_settings(cluster.servers, cluster.properties)
        settings["error_cb"] = error_callback(name, self.counts.record_error)
        return AdminClient(settings, logger=CLIENT_LOG)
