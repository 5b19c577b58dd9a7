"""`rewind-jobs audit`: tells whether everything was loaded that producers published."""

from collections import Counter, defaultdict
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
    name_list,
    plain_refusals,
    refuse,
    table_option,
)
from spark_jobs.cli.run_reports import service_address, service_options, told
from spark_jobs.jobs.service import Facts, Scalar

if TYPE_CHECKING:
    from spark_jobs.jobs.audit import AuditedDay


@click.command()
@table_option
@click.option(
    "--report-table", metavar="URI", required=True, help="The table of windows and producers."
)
@click.option(
    "--topics", metavar="TOPIC,...", default="", help="Of the table.  [default: all but audit]"
)
@day_options
@click.option(
    "--lateness-s",
    type=click.IntRange(0, 86_400),
    default=60,
    show_default=True,
    help="How long before the load a producer may have told of messages that are not loaded yet.",
)
@service_options
@master_option
@json_option
def audit(
    table: str,
    report_table: str,
    topics: str,
    day: datetime | None,
    first: datetime | None,
    end: datetime | None,
    lateness_s: int,
    api: str | None,
    api_key_file: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Compare what producers published on a day with what was loaded, message by message.

    It reads the topic audit and those of the messages in the table that `load` keeps. The exit code
    is 1 when a message is missing, and when the topic audit was not loaded past the day's end.
    """
    from spark_jobs.jobs.audit import LoadAudit
    from spark_jobs.session import running_session

    with plain_refusals(), told("audit", table, service_address(api, api_key_file)) as run:
        days = days_of(day, first, end, datetime.now(UTC))
        job = LoadAudit(table, report_table, name_list(topics), lateness_s * 1_000)
        with running_session("audit", master=master) as session:
            found = [job.of_day(session, each) for each in days]
        run.facts = facts(found)
    _tell(found, as_json)
    missing = sum(each.missing for each in found)
    if missing:
        refuse(f"{missing} messages were published and not loaded; {report_table} tells of which")
    parts = [str(each.day) for each in found if not each.is_whole]
    if parts:
        refuse(
            f"not all is known of {', '.join(parts)}: the topic audit was loaded before producers "
            "could tell of all; load it, and audit again"
        )


def facts(found: "Sequence[AuditedDay]") -> Facts:
    """What the service is told of some days: `missing` is what should have been loaded by now.

    Of what is pending, nobody can say that yet.
    """
    from spark_jobs.jobs.audit import COUNTS
    from spark_jobs.jobs.audit_comparison import MISSING

    sums: Counter[str] = Counter(dict.fromkeys(COUNTS, 0))
    topics: dict[str, Counter[str]] = defaultdict(lambda: Counter(dict.fromkeys(COUNTS, 0)))
    for total in (total for day in found for total in day.totals):
        counts = total.counts if total.status == MISSING else total.counts | {"missing": 0}
        sums.update(counts)
        topics[total.topic].update(counts)
    summary: dict[str, Scalar] = {
        "days": days_in_words([each.day for each in found]),
        "isWhole": all(each.is_whole for each in found),
        "windows": sum(total.windows for day in found for total in day.totals),
        **sums,
    }
    return Facts(summary, topics)


def _tell(found: "Sequence[AuditedDay]", as_json: bool) -> None:
    if as_json:
        echo_json([each.as_json() for each in found])
        return
    for each in found:
        for total in each.totals:
            counts = ", ".join(f"{count} {name}" for name, count in total.counts.items())
            click.echo(
                f"{each.day} {total.topic}: {total.windows} windows {total.status}: {counts}"
            )
        if not each.totals:
            click.echo(f"{each.day}: nobody has told of any message of this day")
