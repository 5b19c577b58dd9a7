"""`rewind-jobs delivery-report`: who got what of a day, and when: a table and a page."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_jobs.cli.days import day_options, days_in_words, days_of
from spark_jobs.cli.options import (
    echo_json,
    json_option,
    master_option,
    origin_option,
    plain_refusals,
    quarantine_option,
    table_option,
)
from spark_jobs.cli.run_reports import service_address, service_options, told
from spark_jobs.jobs.delivery_report.figures import count_text, delay_text, share_text
from spark_jobs.jobs.service import Facts

if TYPE_CHECKING:
    from spark_jobs.jobs.delivery_report.job import WrittenReport


@click.command()
@table_option
@click.option(
    "--report-table", metavar="URI", required=True, help="The table of webhooks and hours."
)
@quarantine_option
@click.option(
    "--page",
    metavar="FOLDER",
    type=click.Path(path_type=Path, file_okay=False),
    required=True,
    help="A folder of this machine for pages: open its index.html.",
)
@day_options
@origin_option
@service_options
@master_option
@json_option
def delivery_report(
    table: str,
    report_table: str,
    quarantine_table: str | None,
    page: Path,
    day: datetime | None,
    first: datetime | None,
    end: datetime | None,
    origin: str,
    api: str | None,
    api_key_file: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Report the outcomes of a day's events, by webhook and hour, as a table and as a page.

    It reads delivery_log, delivery_outcomes and replay_outcomes in the table that `load` keeps. A
    report takes the place of the one that was there of that day: run it again when more has been
    loaded.
    """
    from spark_jobs.jobs.delivery_report.job import DeliveryReport
    from spark_jobs.jobs.derived_tables import quarantine_of
    from spark_jobs.session import running_session

    with (
        plain_refusals(),
        told("delivery-report", table, service_address(api, api_key_file)) as run,
    ):
        days = days_of(day, first, end, datetime.now(UTC))
        quarantine = quarantine_table or quarantine_of(report_table)
        job = DeliveryReport(table, report_table, quarantine, page, origin)
        with running_session("delivery-report", master=master) as session:
            reports = [job.of_day(session, each) for each in days]
        run.facts = facts(reports)
    _tell(reports, as_json)


def facts(reports: "Sequence[WrittenReport]") -> Facts:
    """What the service is told of the reports of some days, added up."""
    sums: Counter[str] = Counter()
    for each in reports:
        sums.update(each.report.total.counts)
    days = days_in_words([each.report.day for each in reports])
    return Facts({"days": days, **sums, "unread": sum(each.unread for each in reports)})


def _tell(reports: "Sequence[WrittenReport]", as_json: bool) -> None:
    if as_json:
        echo_json([each.as_json() for each in reports])
        return
    for each in reports:
        total = each.report.total
        counts = total.counts
        click.echo(
            f"{each.report.day}: {count_text(counts['owed'])} events owed to "
            f"{count_text(each.report.webhooks)} webhooks, "
            f"{share_text(counts['delivered'], counts['owed'])} delivered live, half within "
            f"{delay_text(total.delay_p50_ms)}; {count_text(counts['replayed'])} replayed; "
            f"{count_text(each.unread)} records unread; {each.page}"
        )
