"""Restores the windows of replays that wait for deleted events.

    waiting replay ─▶ is the table complete? ─▶ publish in the log's order ─▶ report the offsets
                               └─ no ─▶ report what is missing

A run that dies has not reported the replay that it was working on. The next run publishes the whole
window again, and reports only its own copy. The first copy is in no reported range, and a later run
deletes it.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import SparkSession

from spark_jobs.errors import PipelineError, RejectedByService, SourceFailed, TasksFailed
from spark_jobs.jobs.delivery_records import DELIVERY_LOG
from spark_jobs.jobs.restore.archive import ArchiveTopic
from spark_jobs.jobs.restore.coverage import Coverage, describe_gaps, read_coverage
from spark_jobs.jobs.restore.records import RecordWindow, read_window
from spark_jobs.jobs.restore.service import PendingRestore, ReplayService, RestoreQueue
from spark_jobs.offsets.resolution import OffsetBounds
from spark_jobs.tables import Snapshot, Table, open_table

Session = Callable[[], SparkSession]


@dataclass(frozen=True)
class RestoreRequest:
    """The records of a webhook and a window, which are below an offset of their partition."""

    webhook_id: str
    start_ms: int
    end_ms: int
    partition: int
    below: int


@dataclass(frozen=True)
class RestoredRange:
    """The offsets `[start, end)` of the archive topic that have all records of a window."""

    partition: int
    start: int
    end: int
    records: int


@dataclass(frozen=True)
class RestoreResult:
    """The result for a replay; both members are None if it is no longer waiting."""

    replay_id: str
    restored: RestoredRange | None = None
    missing: str | None = None

    def document(self) -> dict[str, Any]:
        """The result as JSON."""
        restored = None if self.restored is None else asdict(self.restored)
        return {"replayId": self.replay_id, "restored": restored, "missing": self.missing}


class Restore:
    """Publishes windows of `delivery_log` from the current version of the raw table."""

    def __init__(self, uri: str, archive: ArchiveTopic, session: Session) -> None:
        self._table: Table = open_table(uri)
        self._head: Snapshot = self._table.head()
        self._coverage: dict[int, Coverage] = read_coverage(self._table.commits(), DELIVERY_LOG)
        self._archive = archive
        self._session = session
        self._log = archive.ensure_topic(DELIVERY_LOG)

    def missing_text(self, request: RestoreRequest) -> str | None:
        """What the table lacks of the requested records, as text; None if it has all."""
        source = f"{DELIVERY_LOG}-{request.partition}"
        covered = self._coverage.get(request.partition)
        if covered is None:
            # The owner of the replay reads this text, so it does not name the table.
            return f"nothing of {source} was ever loaded"
        if None not in (ids := {covered.topic_id, self._log.topic_id}) and len(ids) > 1:
            return f"{DELIVERY_LOG} was recreated after it was loaded"
        gaps = covered.gaps_in_window(request.start_ms, request.below)
        return describe_gaps(gaps, source, request.below) if gaps else None

    def publish_window(self, request: RestoreRequest) -> RestoredRange:
        """Publish the requested records.

        Raises:
            SourceFailed: the log did not accept them.
            TasksFailed: Spark could not read them.
        """
        partition, key = request.partition, request.webhook_id.encode()
        window = RecordWindow(DELIVERY_LOG, partition, key, request.start_ms, request.end_ms)
        start = self._bounds(partition).end
        records = read_window(self._session(), self._table, self._head, window)
        count = self._archive.publish(key, partition, records, f"{DELIVERY_LOG}-{partition}")
        return RestoredRange(partition, start, self._bounds(partition).end, count)

    def _bounds(self, partition: int) -> OffsetBounds:
        bounds = self._archive.bounds()
        if partition not in bounds:
            # Brokers learn of a new topic at different times.
            raise SourceFailed(f"the log does not list topic {self._archive.topic} yet")
        return bounds[partition]


def restore_all(
    service: ReplayService, archive: ArchiveTopic, uri: str, session: Session
) -> Iterator[RestoreResult]:
    """Restore each waiting replay, and then delete what no replay needs any more.

    Raises:
        RejectedByService, TasksFailed: of the first replay that failed, after all were tried.
        SourceFailed, StorageFailed: at once; finished replays stay finished.
    """
    queue = service.fetch_queue()
    missing: set[str] = set()
    failures: list[PipelineError] = []
    if queue.pending:
        restore = Restore(uri, archive, session)
        for pending in queue.pending:
            try:
                result = _restore_replay(service, restore, pending)
            except (RejectedByService, TasksFailed) as failure:
                # The other replays may not have this problem.
                failures.append(failure)
                continue
            if result.missing is not None:
                missing.add(result.replay_id)
            yield result
    _delete_unneeded(service, archive, frozenset(missing))
    if failures:
        raise failures[0]


def _restore_replay(
    service: ReplayService, restore: Restore, pending: PendingRestore
) -> RestoreResult:
    request = RestoreRequest(
        pending.webhook_id, pending.start_ms, pending.end_ms, pending.partition, pending.below
    )
    missing = restore.missing_text(request)
    if missing is not None:
        is_waiting = service.report_missing(pending.replay_id, missing)
        return RestoreResult(pending.replay_id, missing=missing if is_waiting else None)
    restored = restore.publish_window(request)
    is_waiting = service.report_restored(
        pending.replay_id, restored.partition, restored.start, restored.end
    )
    return RestoreResult(pending.replay_id, restored=restored if is_waiting else None)


def _delete_unneeded(
    service: ReplayService, archive: ArchiveTopic, missing: frozenset[str]
) -> None:
    # In this order: another job publishes for replays that are not in the queue above these bounds.
    bounds = archive.bounds()
    queue = service.fetch_queue()
    archive.delete_records(deletable_offsets(bounds, queue, missing))


def deletable_offsets(
    bounds: dict[int, OffsetBounds], queue: RestoreQueue, missing: frozenset[str]
) -> dict[int, int]:
    """The offsets below which records may be deleted, by partition.

    `bounds` were looked up before `queue`. Another job may be restoring any waiting replay without
    having reported it. So the partitions of waiting replays are skipped, except for those
    `missing`, which cannot be restored.
    """
    busy = {each.partition for each in queue.pending if each.replay_id not in missing}
    busy |= queue.further_partitions
    limits = {
        partition: min(queue.needed.get(partition, held.end), held.end)
        for partition, held in bounds.items()
        if partition not in busy
    }
    return {each: limit for each, limit in limits.items() if limit > bounds[each].first}
