"""The `rewind-jobs` command: one job, one subcommand; stdout is data, stderr is talk."""

import logging
from collections.abc import Mapping
from typing import Final

import click

from logbroker.lazy_group import LazyCommand, LazyGroup

COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "load": LazyCommand(
        "spark_jobs.cli.load:load",
        "Load what the log has had since the last load into a table, as Parquet by topic and hour.",
    ),
    "compact": LazyCommand(
        "spark_jobs.cli.compact:compact",
        "Merge the small files of each topic, date and hour, and delete orphaned files.",
    ),
    "decode": LazyCommand(
        "spark_jobs.cli.decode:decode",
        "Decode what has been loaded since the last time: Avro by its schema, JSON as it is.",
    ),
    "audit": LazyCommand(
        "spark_jobs.cli.audit:audit",
        "Compare what producers published on a day with what was loaded, message by message.",
    ),
    "delivery-report": LazyCommand(
        "spark_jobs.cli.delivery_report:delivery_report",
        "Report the outcomes of a day's events, by webhook and hour, as a table and as a page.",
    ),
    "windowed-counts": LazyCommand(
        "spark_jobs.cli.windowed_counts:windowed_counts",
        "Count events per type and window of their own time, to a table and maybe to a topic.",
    ),
    "delivery-join": LazyCommand(
        "spark_jobs.cli.delivery_join:delivery_join",
        "Join events with their outcomes as they come, a row for each event.",
    ),
    "restore": LazyCommand(
        "spark_jobs.cli.restore:restore",
        "Publish deleted events again, from the raw table, for replays that wait for them.",
    ),
}


@click.command(
    cls=LazyGroup,
    lazy_commands=COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="rewind")
def main() -> None:
    """Spark jobs over the log: nightly loads, audits, reports, and restores."""
    logging.basicConfig(format="rewind-jobs: %(message)s")
