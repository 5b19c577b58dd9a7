"""What `rewind-jobs restore` runs: one window by hand, or rounds for the replays that wait."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import click

from logbroker.client.partitioner import partition_for_key
from logbroker.client.raw import LATEST, RawCluster, TopicPartition
from spark_jobs.cli.options import echo_json, refuse
from spark_jobs.cli.run_reports import told
from spark_jobs.errors import PipelineError
from spark_jobs.jobs.restore.job import DELIVERY_LOG, Done, Restore, Restored, Wanted
from spark_jobs.jobs.service import Facts, ServiceAddress
from spark_jobs.log.client_errors import translated

PAUSE_S: Final = 60.0

LATE_MS: Final = 15 * 60_000
"""By hand, records are looked for up to the first that is so much younger than the window."""


def restore_window(
    restore: Restore, window: tuple[str, int, int], properties: Mapping[str, str], as_json: bool
) -> None:
    """Restore a webhook's window, `[start, end)` in milliseconds, and print where it is."""
    wanted = _located(window, properties)
    if (missing := restore.lacking(wanted)) is not None:
        refuse(f"not restored, for the table lacks some of it: {missing}")
    place = restore.bring(wanted)
    if as_json:
        echo_json(Done("", place).document()["restored"])
    else:
        click.echo(_place(place))


def _located(window: tuple[str, int, int], properties: Mapping[str, str]) -> Wanted:
    """Where the window's records were in the log."""
    webhook, start_ms, end_ms = window
    with translated("the log cannot be asked"), RawCluster(properties) as cluster:
        partitions = len(cluster.topics([DELIVERY_LOG])[DELIVERY_LOG].partitions)
        place = TopicPartition(DELIVERY_LOG, partition_for_key(webhook.encode(), partitions))
        below = cluster.offsets({place: end_ms + LATE_MS})[place]
        if below is None:
            below = cluster.offsets({place: LATEST})[place] or 0
    return Wanted(webhook, start_ms, end_ms, place.partition, below)


@dataclass(frozen=True)
class Rounds:
    """Does what waits, as often as it is asked to, and tells the service how each round went."""

    run: Callable[[], Iterator[Done]]
    table: str
    service: ServiceAddress
    as_json: bool

    def once(self) -> None:
        """Do all that waits; the process ends with 1 if the table lacks some of it."""
        with told("restore", self.table, self.service) as run:
            run.facts = found = _tell(self.run(), self.as_json)
        if missing := found.summary["missing"]:
            refuse(f"{missing} replays wait on, for the table lacks some of their windows")

    def for_ever(self) -> None:
        """Look each minute."""
        while True:
            try:
                with told("restore", self.table, self.service) as run:
                    found = _tell(self.run(), self.as_json)
                    # That nothing waits is what most rounds find.
                    run.facts = found if any(found.summary.values()) else None
            except PipelineError as error:
                # It may be better the next time, and others than those before may wait then.
                click.echo(f"rewind-jobs: {error}", err=True)
            time.sleep(PAUSE_S)


def _tell(found: Iterator[Done], as_json: bool) -> Facts:
    """Print what became of each, as it comes, and count it."""
    restored = records = missing = 0
    for done in found:
        missing += done.missing is not None
        if done.restored is not None:
            restored += 1
            records += done.restored.records
        if as_json:
            echo_json(done.document())
        else:
            click.echo(f"{done.replay_id}: {_in_words(done)}")
    return Facts({"restored": restored, "records": records, "missing": missing})


def _in_words(done: Done) -> str:
    if done.restored is not None:
        return _place(done.restored)
    return "does not wait any more" if done.missing is None else f"missing: {done.missing}"


def _place(place: Restored) -> str:
    return (
        f"{place.records} records restored to partition {place.partition}, offsets {place.start} "
        f"to {place.end}"
    )
