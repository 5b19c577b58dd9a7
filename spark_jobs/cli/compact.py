"""`rewind-jobs compact`: small files of a table become fewer, and orphans go."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_jobs.cli.options import (
    echo_json,
    json_option,
    master_option,
    plain_refusals,
    table_option,
)
from spark_jobs.cli.run_reports import service_address, service_options, told
from spark_jobs.jobs.defaults import ORPHANS_S, SMALL_BYTES
from spark_jobs.jobs.service import Facts

if TYPE_CHECKING:
    from spark_jobs.jobs.compact import CompactReport


@click.command()
@table_option
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
    help="Delete what runs left that have not committed, and have written nothing for so long.",
)
@service_options
@master_option
@json_option
def compact(
    table: str,
    small_bytes: int,
    orphans_older_than_s: float,
    api: str | None,
    api_key_file: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Merge the small files of each topic, date and hour, and delete orphaned files.

    May run beside a load, and beside readers: those that began before find their files for a week.
    """
    from spark_jobs.jobs.compact import compact as run_compact
    from spark_jobs.jobs.compact import document, lines
    from spark_jobs.session import session_on_demand

    with plain_refusals(), told("compact", table, service_address(api, api_key_file)) as run:
        with session_on_demand("compact", master=master) as session:
            report = run_compact(
                table,
                session,
                small_bytes=small_bytes,
                orphans_older_than_s=orphans_older_than_s,
            )
        run.facts = _facts(report)
    if as_json:
        echo_json(document(report))
        return
    for line in lines(report, table):
        click.echo(line)


def _facts(report: "CompactReport") -> Facts:
    from spark_jobs.jobs.compact import document

    found = document(report)
    names = ("version", "merged", "files", "fileBytes", "records")
    return Facts({name: found[name] for name in names} | {"collected": report.collected.files})
