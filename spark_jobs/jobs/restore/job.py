"""Restores what replays of the archive wait for.

    what waits ─▶ does the table have it all? ─▶ publish, in the log's order ─▶ tell where it lies
                             └─ no ─▶ tell what is missing

A run that dies has told nothing of the replay that it worked on: the next one publishes all of its
window again, and tells of that copy alone. What it left lies in nobody's range, and is deleted by a
later run.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from pyspark.sql import SparkSession

from spark_jobs.errors import PipelineError, RefusedByService, SourceFailed, TasksFailed
from spark_jobs.jobs.restore.archive import ArchiveTopic, Bounds
from spark_jobs.jobs.restore.coverage import Coverage, coverage, in_words
from spark_jobs.jobs.restore.records import Window, records_of
from spark_jobs.jobs.restore.service import Awaited, ReplayService, Work
from spark_jobs.tables import Snapshot, Table, open_table

DELIVERY_LOG: Final = "delivery_log"

Session = Callable[[], SparkSession]


@dataclass(frozen=True)
class Wanted:
    """The records of a webhook and a window, which lay below an offset of their partition."""

    webhook_id: str
    start_ms: int
    end_ms: int
    partition: int
    below: int


@dataclass(frozen=True)
class Restored:
    """Where the records of a window lie now: `[start, end)` has all of them."""

    partition: int
    start: int
    end: int
    records: int


@dataclass(frozen=True)
class Done:
    """What became of a replay that waited; both are None when it does not wait any more."""

    replay_id: str
    restored: Restored | None = None
    missing: str | None = None

    def document(self) -> dict[str, Any]:
        """For scripts."""
        place = None if self.restored is None else asdict(self.restored)
        return {"replayId": self.replay_id, "restored": place, "missing": self.missing}


class Restore:
    """Brings windows of `delivery_log` back out of a version of the raw table, read once."""

    def __init__(self, uri: str, archive: ArchiveTopic, session: Session) -> None:
        self._table: Table = open_table(uri)
        self._head: Snapshot = self._table.head()
        self._covered: dict[int, Coverage] = coverage(self._table.commits(), DELIVERY_LOG)
        self._archive = archive
        self._session = session
        self._log = archive.ensure(DELIVERY_LOG)

    def lacking(self, wanted: Wanted) -> str | None:
        """What the table lacks of what is wanted, in words; None when it has all."""
        place = f"{DELIVERY_LOG}-{wanted.partition}"
        covered = self._covered.get(wanted.partition)
        if covered is None:
            # Whoever asked for the replay reads this: where tables lie is not for everybody.
            return f"nothing of {place} was ever loaded"
        if None not in (ids := {covered.topic_id, self._log.topic_id}) and len(ids) > 1:
            return f"{DELIVERY_LOG} was made anew since it was loaded"
        gaps = covered.lacking(wanted.start_ms, wanted.below)
        return in_words(gaps, place, wanted.below) if gaps else None

    def bring(self, wanted: Wanted) -> Restored:
        """Publish the records of a window.

        Raises:
            SourceFailed: the log did not take them.
            TasksFailed: Spark could not read them.
        """
        partition, key = wanted.partition, wanted.webhook_id.encode()
        window = Window(DELIVERY_LOG, partition, key, wanted.start_ms, wanted.end_ms)
        start = self._bounds(partition).high
        records = records_of(self._session(), self._table, self._head, window)
        count = self._archive.publish(key, partition, records, f"{DELIVERY_LOG}-{partition}")
        return Restored(partition, start, self._bounds(partition).high, count)

    def _bounds(self, partition: int) -> Bounds:
        held = self._archive.bounds()
        if partition not in held:
            # A topic that was just made is not known to every broker at once.
            raise SourceFailed(f"{self._archive.topic} is not shown by the log yet")
        return held[partition]


def restore_all(
    service: ReplayService, archive: ArchiveTopic, uri: str, session: Session
) -> Iterator[Done]:
    """Do all that waits, one replay after the other; then delete what no replay needs any more.

    Raises:
        RefusedByService, TasksFailed: of the first replay that failed, once all were tried.
        SourceFailed, StorageFailed: at once; what was done stays done.
    """
    work = service.work()
    missing: set[str] = set()
    failures: list[PipelineError] = []
    if work.awaited:
        restore = Restore(uri, archive, session)
        for awaited in work.awaited:
            try:
                done = _settle(service, restore, awaited)
            except (RefusedByService, TasksFailed) as failure:
                # Those behind it must not wait for what is wrong with this one.
                failures.append(failure)
                continue
            if done.missing is not None:
                missing.add(done.replay_id)
            yield done
    _delete_unneeded(service, archive, frozenset(missing))
    if failures:
        raise failures[0]


def _settle(service: ReplayService, restore: Restore, awaited: Awaited) -> Done:
    wanted = Wanted(
        awaited.webhook_id, awaited.start_ms, awaited.end_ms, awaited.partition, awaited.below
    )
    missing = restore.lacking(wanted)
    if missing is not None:
        is_waiting = service.missing(awaited.replay_id, missing)
        return Done(awaited.replay_id, missing=missing if is_waiting else None)
    place = restore.bring(wanted)
    is_waiting = service.restored(awaited.replay_id, place.partition, place.start, place.end)
    return Done(awaited.replay_id, restored=place if is_waiting else None)


def _delete_unneeded(
    service: ReplayService, archive: ArchiveTopic, missing: frozenset[str]
) -> None:
    # In this order: what another job publishes for a replay that is not in the list lies above.
    held = archive.bounds()
    work = service.work()
    archive.delete_below(unneeded(held, work, missing))


def unneeded(held: dict[int, Bounds], work: Work, missing: frozenset[str]) -> dict[int, int]:
    """The offsets below which records may be deleted, by partition; `held` was asked before `work`.

    Another job may be at work on whatever waits, and have told of nothing yet: partitions of these
    are left alone, but for those `missing`, which this one has seen that nobody can restore.
    """
    busy = {each.partition for each in work.awaited if each.replay_id not in missing}
    busy |= work.further_partitions
    limits = {
        partition: min(work.needed.get(partition, bounds.high), bounds.high)
        for partition, bounds in held.items()
        if partition not in busy
    }
    return {each: limit for each, limit in limits.items() if limit > held[each].low}
