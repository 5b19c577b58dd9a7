"""`rewind-jobs audit`: checks that all published messages were loaded."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from spark_jobs.cli.days import DayOptions, day_options, format_days
from spark_jobs.cli.options import (
    JobOptions,
    echo_json,
    exit_on_errors,
    exit_with_error,
    job_options,
    split_names,
)
from spark_jobs.cli.run_reports import ServiceOptions, reporting_run, service_options
from spark_jobs.jobs.service import RunSummary, SummaryValue

if TYPE_CHECKING:
    from spark_jobs.jobs.audit import AuditedDay


@click.command()
@job_options
@click.option(
    "--report-table",
    metavar="URI",
    required=True,
    help="Table for the results per window and producer.",
)
@click.option(
    "--topics",
    metavar="TOPIC,...",
    default="",
    help="Topics of the table to audit.  [default: all except audit]",
)
@day_options
@click.option(
    "--lateness-s",
    type=click.IntRange(0, 86_400),
    default=60,
    show_default=True,
    help="Messages that a producer reported within this time before the load began are pending, "
    "not missing.",
)
@service_options
def audit(
    job: JobOptions,
    report_table: str,
    topics: str,
    days: DayOptions,
    lateness_s: int,
    service: ServiceOptions,
) -> None:
    """Compare the messages published on a day with the loaded ones, message by message.

    It reads the topic audit and the audited topics from the table that `load` writes. The exit
    code is 1 if a message is missing, or if the topic audit is not loaded past the end of the day.
    """
    from spark_jobs.jobs.audit import LoadAudit
    from spark_jobs.session import running_session

    with exit_on_errors(), reporting_run("audit", job.table, service.address()) as run:
        dates = days.dates(datetime.now(UTC))
        load_audit = LoadAudit(job.table, report_table, split_names(topics), lateness_s * 1_000)
        with running_session("audit", master=job.master) as session:
            results = [load_audit.audit_day(session, each) for each in dates]
        run.summary = summarize_audit(results)
    _print_results(results, as_json=job.as_json)
    missing = sum(each.missing for each in results)
    if missing:
        exit_with_error(f"{missing} published messages are not loaded; see {report_table}")
    incomplete = [str(each.day) for each in results if not each.is_whole]
    if incomplete:
        exit_with_error(
            f"result incomplete for {', '.join(incomplete)}: the topic audit was loaded before all "
            "producers had reported; load it and audit again"
        )


def summarize_audit(results: "Sequence[AuditedDay]") -> RunSummary:
    """The totals of some days; pending messages do not count as missing."""
    from spark_jobs.jobs.audit import COUNTS
    from spark_jobs.jobs.audit_comparison import MISSING

    sums: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    topics: dict[str, Counter[str]] = defaultdict(lambda: Counter(dict.fromkeys(COUNTS, 0)))
    for total in (total for day in results for total in day.totals):
        counts = total.counts if total.status == MISSING else total.counts | {"missing": 0}
        sums.update(counts)
        topics[total.topic].update(counts)
    summary: dict[str, SummaryValue] = {
        "days": format_days([each.day for each in results]),
        "isWhole": all(each.is_whole for each in results),
        "windows": sum(total.windows for day in results for total in day.totals),
        **sums,
    }
    return RunSummary(summary, topics)


def _print_results(results: "Sequence[AuditedDay]", *, as_json: bool) -> None:
    if as_json:
        echo_json([each.as_json() for each in results])
        return
    for each in results:
        for total in each.totals:
            counts = ", ".join(f"{count} {name}" for name, count in total.counts.items())
            click.echo(
                f"{each.day} {total.topic}: {total.windows} windows {total.status}: {counts}"
            )
        if not each.totals:
            click.echo(f"{each.day}: no messages reported or loaded")
