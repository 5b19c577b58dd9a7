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
    Complaints,
    admin_settings,
    consumer_settings,
    producer_settings,
)
from logbroker.mirror.held import HeldPartitions
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.passage import Passage, Share
from logbroker.mirror.provenance import Provenance
from logbroker.mirror.received_reports import MirrorReports
from logbroker.mirror.sender import PassageFailed, Sender
from logbroker.mirror.settings import Cluster, MirrorSettings
from logbroker.mirror.topic_choice import TopicChoice
from logbroker.mirror.topics import Aligned, TopicAligner

T = TypeVar("T")

_log: Final = logging.getLogger(__name__)

RETRY_S: Final = 1.0
CHANGED_S: Final = 0.1
"""Time until the next look at topics that were just changed."""

BACKOFF_S: Final = 0.5
BACKOFF_MAX_S: Final = 30.0


class Mirror:
    """One mirror process; several with the same group share the partitions.

    `is_ready` is called once, when the group has given it its first share.
    """

    def __init__(self, settings: MirrorSettings, is_ready: Callable[[], None]) -> None:
        self.counts = MirrorCounts()
        self._settings = settings
        self._is_ready = is_ready
        self._stopping = Event()
        self._held = HeldPartitions()
        self._consumer_name = f"{socket.gethostname()}/{secrets.token_hex(4)}"
        self._aligner = TopicAligner(
            self._admin("source", settings.source),
            self._admin("destination", settings.destination),
            TopicChoice(settings.topics),
        )

    def stop(self) -> None:
        """End `run` soon; safe on any thread and in a signal's handler."""
        self._stopping.set()

    def run(self) -> None:
        """Copy until stopped, through every fault that a repair elsewhere can end.

        Raises:
            ConfigurationError: the two clusters, or their topics, cannot be mirrored as they are.
        """
        ids = self._patiently(self._aligner.cluster_ids)
        if ids is None:
            return
        self._tell_route(*ids)
        reports = self._make_reports(ids[0])
        try:
            self._copy(*ids, reports)
        finally:
            reports.close()

    def _make_reports(self, source_id: str) -> MirrorReports:
        tier = f"mirror@{self._settings.origin or source_id}"
        counter = ReceivedCounter(tier, self._consumer_name)
        return MirrorReports(self._settings.source, counter, self.counts)

    def _copy(self, source_id: str, destination_id: str, reports: MirrorReports) -> None:
        backoff_s = BACKOFF_S
        while not self._stopping.is_set():
            copied = self._copied
            try:
                self._pass(source_id, destination_id, reports)
            except PassageFailed as failure:
                self.counts.error(failure.reason)
                self.counts.restarts += 1
                is_moving = self._has_held(failure) or self._copied > copied
                backoff_s = BACKOFF_S if is_moving else min(backoff_s * 2, BACKOFF_MAX_S)
                _log.error("begins again in_s=%s reason=%s", backoff_s, failure)
                self._stopping.wait(backoff_s)

    def _tell_route(self, source_id: str, destination_id: str) -> None:
        settings = self._settings
        _log.info(
            "copies topics=%s from=%s from_cluster=%s to=%s to_cluster=%s origin=%s group=%s",
            ",".join(settings.topics),
            *(settings.source.servers, source_id),
            *(settings.destination.servers, destination_id),
            settings.origin,
            self._group(destination_id),
        )

    def _group(self, destination_id: str) -> str:
        return self._settings.group or f"logbroker-mirror-{destination_id}"

    def _has_held(self, failure: PassageFailed) -> bool:
        """Hold the partition back that cannot go on; the others need not wait for it."""
        lane = failure.lane
        if lane is None:
            return False
        place = lane.topic, lane.partition
        hold_s = self._held.hold(place, time.monotonic(), has_moved=lane.acknowledged_s > 0)
        _log.error("partition held back topic=%s partition=%s for_s=%s", *place, hold_s)
        return True

    def _pass(self, source_id: str, destination_id: str, reports: MirrorReports) -> None:
        aligned = self._align()
        if aligned is None:
            return
        settings, counts = self._settings, self.counts
        sender = Sender(
            producer_settings(
                settings.destination.servers,
                settings.destination.properties,
                compression=settings.compression,
                batch_bytes=aligned.batch_bytes,
            )
            | {"error_cb": Complaints("destination", counts.error).note},
            Provenance(source_id, destination_id, settings.origin),
            counts,
            reports.counter.count_message,
        )
        source = settings.source
        Passage(
            consumer_settings(source.servers, self._group(destination_id), source.properties),
            aligned.topics,
            Share(aligned.partitions, aligned.ids, aligned.watch, self._has_begun),
            sender,
            reports,
            counts,
            self._held,
            self._stopping,
        ).run()

    def _align(self) -> Aligned | None:
        """The topics once both clusters agree; None when stopped before."""
        while not self._stopping.is_set():
            aligned = self._patiently(self._aligner.align)
            if aligned is not None:
                return aligned
            self._stopping.wait(CHANGED_S)
        return None

    def _patiently(self, ask: Callable[[], T]) -> T | None:
        """The answer, however long a cluster is away; None when stopped before."""
        said = ""
        while not self._stopping.is_set():
            try:
                return ask()
            except KafkaException as refusal:
                error = refusal.args[0]
                self.counts.error(error.name())
                if error.str() != said:
                    said = error.str()
                    _log.warning("waiting for a cluster reason=%s", said)
                # Why nobody answers, a wrong password for one, is told aside.
                self._aligner.hear_complaints()
                self._stopping.wait(RETRY_S)
        return None

    def _has_begun(self) -> None:
        self._is_ready()
        self._is_ready = _nothing

    @property
    def _copied(self) -> int:
        return sum(each.records for each in self.counts.topics.values())

    def _admin(self, name: str, cluster: Cluster) -> AdminClient:
        settings = admin_settings(cluster.servers, cluster.properties)
        settings["error_cb"] = Complaints(name, self.counts.error).note
        return AdminClient(settings, logger=CLIENT_LOG)


def _nothing() -> None:
    """Nobody waits any more."""
