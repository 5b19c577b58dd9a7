"""`rewind-jobs compact`: merges small files of a table, and deletes orphaned files."""

from typing import TYPE_CHECKING

import click

from spark_jobs.cli.options import JobOptions, echo_json, exit_on_errors, job_options
from spark_jobs.cli.run_reports import ServiceOptions, reporting_run, service_options
from spark_jobs.jobs.defaults import ORPHANS_S, SMALL_BYTES
from spark_jobs.jobs.service import RunSummary

if TYPE_CHECKING:
    from spark_jobs.jobs.compact import CompactReport


@click.command()
@job_options
@click.option(
    "--small-bytes",
    type=click.IntRange(1),
    default=SMALL_BYTES,
    show_default=True,
    help="Merge files that are smaller than this.",
)
@click.option(
    "--orphans-older-than-s",
    type=click.FloatRange(0),
    default=ORPHANS_S,
    show_default=True,
    help="Delete the files of runs that have neither committed nor written for this long.",
)
@service_options
def compact(
    job: JobOptions, small_bytes: int, orphans_older_than_s: float, service: ServiceOptions
) -> None:
    """Merge the small files of each topic, date and hour, and delete orphaned files.

    It may run during a load and while the table is read: replaced files are kept for a week.
    """
    from spark_jobs.jobs.compact import compact as run_compact
    from spark_jobs.jobs.compact import report_json, report_lines
    from spark_jobs.session import session_on_demand

    with exit_on_errors(), reporting_run("compact", job.table, service.address()) as run:
        with session_on_demand("compact", master=job.master) as session:
            report = run_compact(
                job.table,
                session,
                small_bytes=small_bytes,
                orphans_older_than_s=orphans_older_than_s,
            )
        run.summary = _summary(report)
    if job.as_json:
        echo_json(report_json(report))
        return
    for line in report_lines(report, job.table):
        click.echo(line)


def _summary(report: "CompactReport") -> RunSummary:
    from spark_jobs.jobs.compact import report_json

    found = report_json(report)
    names = ("version", "merged", "files", "fileBytes", "records")
    return RunSummary({name: found[name] for name in names} | {"collected": report.orphans.files})
