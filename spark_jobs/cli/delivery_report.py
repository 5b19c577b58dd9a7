"""`rewind-jobs delivery-report`: reports a day's deliveries per webhook and hour."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_jobs.cli.days import DayOptions, day_options, format_days
from spark_jobs.cli.options import (
    JobOptions,
    echo_json,
    exit_on_errors,
    job_options,
    origin_option,
    quarantine_option,
)
from spark_jobs.cli.run_reports import ServiceOptions, reporting_run, service_options
from spark_jobs.jobs.delivery_report.figures import count_text, delay_text, share_text
from spark_jobs.jobs.service import RunSummary

if TYPE_CHECKING:
    from spark_jobs.jobs.delivery_report.job import WrittenReport


@click.command()
@job_options
@click.option(
    "--report-table",
    metavar="URI",
    required=True,
    help="Table for the results per webhook and hour.",
)
@quarantine_option
@click.option(
    "--page",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="Local folder for HTML pages; open its index.html.",
)
@day_options
@origin_option
@service_options
def delivery_report(
    job: JobOptions,
    report_table: str,
    quarantine_table: str | None,
    page: Path,
    days: DayOptions,
    origin: str,
    service: ServiceOptions,
) -> None:
    """Report the outcomes of a day's events per webhook and hour, as a table and a page.

    It reads delivery_log, delivery_outcomes and replay_outcomes from the table that `load` writes.
    A report replaces the earlier one of the same day: run it again when more has been loaded.
    """
    from spark_jobs.jobs.delivery_report.job import DeliveryReport
    from spark_jobs.jobs.derived_tables import quarantine_uri
    from spark_jobs.session import running_session

    with exit_on_errors(), reporting_run("delivery-report", job.table, service.address()) as run:
        dates = days.dates(datetime.now(UTC))
        quarantine = quarantine_table or quarantine_uri(report_table)
        report = DeliveryReport(job.table, report_table, quarantine, page, origin)
        with running_session("delivery-report", master=job.master) as session:
            written = [report.write_day(session, each) for each in dates]
        run.summary = summarize_reports(written)
    _print_reports(written, as_json=job.as_json)


def summarize_reports(reports: "Sequence[WrittenReport]") -> RunSummary:
    """The totals of the reports of some days."""
    sums: Counter[str] = Counter()
    for each in reports:
        sums.update(each.report.total.counts)
    days = format_days([each.report.day for each in reports])
    return RunSummary({"days": days, **sums, "unread": sum(each.unread for each in reports)})


def _print_reports(reports: "Sequence[WrittenReport]", *, as_json: bool) -> None:
    if as_json:
        echo_json([each.as_json() for each in reports])
        return
    for each in reports:
        total = each.report.total
        counts = total.counts
        click.echo(
            f"{each.report.day}: {count_text(counts['owed'])} events for "
            f"{count_text(each.report.webhooks)} webhooks, "
            f"{share_text(counts['delivered'], counts['owed'])} delivered live, p50 delay "
            f"{delay_text(total.delay_p50_ms)}; {count_text(counts['replayed'])} replayed; "
            f"{count_text(each.unread)} unreadable records; {each.page}"
        )
