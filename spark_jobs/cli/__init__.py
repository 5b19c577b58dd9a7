"""The `rewind-jobs` command: one subcommand per job. Reports go to stdout, messages to stderr."""

import logging
import os
from collections.abc import Mapping
from typing import Final

import click

from logbroker.lazy_group import LazyCommand, LazyGroup

COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "load": LazyCommand(
        "spark_jobs.cli.load:load",
        "Load new records of the log into a table, as Parquet files by topic, day and hour.",
    ),
    "compact": LazyCommand(
        "spark_jobs.cli.compact:compact",
        "Merge the small files of each topic, date and hour, and delete orphaned files.",
    ),
    "decode": LazyCommand(
        "spark_jobs.cli.decode:decode",
        "Decode records loaded since the last run: Avro by its schema, JSON unchanged.",
    ),
    "audit": LazyCommand(
        "spark_jobs.cli.audit:audit",
        "Compare the messages published on a day with the loaded ones, message by message.",
    ),
    "delivery-report": LazyCommand(
        "spark_jobs.cli.delivery_report:delivery_report",
        "Report the outcomes of a day's events per webhook and hour, as a table and a page.",
    ),
    "windowed-counts": LazyCommand(
        "spark_jobs.cli.windowed_counts:windowed_counts",
        "Count events per type and window of event time, into a table and optionally a topic.",
    ),
    "delivery-join": LazyCommand(
        "spark_jobs.cli.delivery_join:delivery_join",
        "Join each event of delivery_log with its outcome, one row per event.",
    ),
    "restore": LazyCommand(
        "spark_jobs.cli.restore:restore",
        "Publish deleted events again, from the raw table, for replays that wait for them.",
    ),
}


@click.command(
    cls=LazyGroup,
    lazy_commands=COMMANDS,
    extra="spark",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rewind")
def main() -> None:
    """Spark jobs over the log: nightly loads, audits, reports, and restores."""
    logging.basicConfig(format="rewind-jobs: %(message)s")
    # Tables and reports contain payloads; their folder may be readable for everyone.
    os.umask(0o077)
