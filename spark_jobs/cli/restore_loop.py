"""What `rewind-jobs restore` runs: a manual restore, or a loop over waiting replays."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import click

from logbroker.client.partitioner import partition_for_key
from logbroker.client.raw import LATEST, RawCluster, TopicPartition
from spark_jobs.cli.options import echo_json, exit_with_error
from spark_jobs.cli.run_reports import reporting_run
from spark_jobs.errors import PipelineError
from spark_jobs.jobs.delivery_records import DELIVERY_LOG
from spark_jobs.jobs.restore.job import Restore, RestoredRange, RestoreRequest, RestoreResult
from spark_jobs.jobs.service import RunSummary, ServiceAddress
from spark_jobs.log.client_errors import translate_client_errors

PAUSE_S: Final = 60.0

LATE_MS: Final = 15 * 60_000
"""A manual restore searches up to the first record that is this much younger than the window."""


def restore_window(
    restore: Restore,
    window: tuple[str, int, int],
    properties: Mapping[str, str],
    *,
    as_json: bool,
) -> None:
    """Restore a webhook's window, `[start, end)` in ms, and print its offsets."""
    request = _locate_window(window, properties)
    if (missing := restore.missing_text(request)) is not None:
        exit_with_error(f"not restored; the table lacks records: {missing}")
    restored = restore.publish_window(request)
    if as_json:
        echo_json(RestoreResult("", restored).document()["restored"])
    else:
        click.echo(_range_text(restored))


def _locate_window(window: tuple[str, int, int], properties: Mapping[str, str]) -> RestoreRequest:
    """The partition of the window's records, and the offset that they are below."""
    webhook, start_ms, end_ms = window
    with (
        translate_client_errors("offsets cannot be looked up"),
        RawCluster(properties) as cluster,
    ):
        partitions = len(cluster.topics([DELIVERY_LOG])[DELIVERY_LOG].partitions)
        tp = TopicPartition(DELIVERY_LOG, partition_for_key(webhook.encode(), partitions))
        below = cluster.offsets({tp: end_ms + LATE_MS})[tp]
        if below is None:
            below = cluster.offsets({tp: LATEST})[tp] or 0
    return RestoreRequest(webhook, start_ms, end_ms, tp.partition, below)


@dataclass(frozen=True)
class RestoreLoop:
    """Processes the waiting replays, once or every minute, and reports each round."""

    restore: Callable[[], Iterator[RestoreResult]]
    table: str
    service: ServiceAddress
    as_json: bool

    def run_once(self) -> None:
        """Process all waiting replays; exit with 1 if the table lacks some of their events."""
        with reporting_run("restore", self.table, self.service) as run:
            run.summary = summary = _print_results(self.restore(), as_json=self.as_json)
        if missing := summary.counts["missing"]:
            exit_with_error(
                f"{missing} replays are still waiting: the table lacks events of their windows"
            )

    def run_forever(self) -> None:
        """Process the waiting replays every minute."""
        while True:
            try:
                with reporting_run("restore", self.table, self.service) as run:
                    summary = _print_results(self.restore(), as_json=self.as_json)
                    # Most rounds have nothing to do.
                    run.summary = summary if any(summary.counts.values()) else None
            except PipelineError as error:
                # The next round may succeed, and may have other replays.
                click.echo(f"rewind-jobs: {error}", err=True)
            time.sleep(PAUSE_S)


def _print_results(results: Iterator[RestoreResult], *, as_json: bool) -> RunSummary:
    """Print each result as it arrives, and count them."""
    restored = records = missing = 0
    for result in results:
        missing += result.missing is not None
        if result.restored is not None:
            restored += 1
            records += result.restored.records
        if as_json:
            echo_json(result.document())
        else:
            click.echo(f"{result.replay_id}: {_result_text(result)}")
    return RunSummary({"restored": restored, "records": records, "missing": missing})


def _result_text(result: RestoreResult) -> str:
    if result.restored is not None:
        return _range_text(result.restored)
    return "no longer waiting" if result.missing is None else f"missing: {result.missing}"


def _range_text(restored: RestoredRange) -> str:
    return (
        f"{restored.records} records restored to partition {restored.partition}, offsets "
        f"{restored.start} to {restored.end}"
    )
