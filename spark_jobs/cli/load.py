"""`rewind-jobs load`: appends new records of the log to a table."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import click

from logbroker.option_group import option_group
from spark_jobs.cli.options import (
    JobOptions,
    LogOptions,
    compile_pattern,
    echo_json,
    exit_on_errors,
    job_options,
    log_options,
    split_names,
)
from spark_jobs.cli.run_reports import ServiceOptions, reporting_run, service_options
from spark_jobs.errors import DataLost, InvalidOption, TopicReplaced
from spark_jobs.jobs.defaults import CODECS, RECORDS_MAX
from spark_jobs.jobs.service import RunSummary

if TYPE_CHECKING:
    from spark_jobs.jobs.load_report import LoadReport
    from spark_jobs.offsets.limits import Matching, Subscribed

_LOSS_ADVICE: Final = (
    "nothing was loaded; with --no-fail-on-data-loss the load continues: it reports the number of "
    "missing offsets, records deleted topics for later loads, and loads a recreated topic from its "
    "first offset; to keep a recreated topic separate from the old one, load it into another "
    "--table"
)


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """Which topics to load."""

    topics: str | None
    subscribe_pattern: str | None

    def choice(self) -> "Subscribed | Matching":
        """The topics by name or by pattern.

        Raises:
            InvalidOption: none or both of the options are given, or the value is malformed.
        """
        from spark_jobs.offsets.limits import Matching, Subscribed

        if (self.topics is None) == (self.subscribe_pattern is None):
            raise InvalidOption("exactly one of --topics and --subscribe-pattern is required")
        if self.subscribe_pattern is not None:
            return Matching(compile_pattern("--subscribe-pattern", self.subscribe_pattern))
        names = split_names(self.topics or "")
        if not names:
            raise InvalidOption("--topics is empty")
        return Subscribed(names)


topic_options = option_group(
    "topics",
    TopicOptions,
    click.option("--topics", metavar="TOPIC,...", help="Load these topics."),
    click.option(
        "--subscribe-pattern",
        metavar="REGEX",
        help="Load all topics whose name contains a match, including topics created later.",
    ),
)


@click.command()
@job_options
@log_options
@topic_options
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="Stop if records were deleted before they were loaded, cannot be read, or belong to a "
    "recreated topic; or continue and report what is missing.",
)
@click.option(
    "--starting-offsets",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where the first load into a table starts. Later loads continue where the last one "
    "ended; new topics and partitions are loaded from their first offset.",
)
@click.option(
    "--max-records-per-partition",
    "records_max",
    type=click.IntRange(1),
    default=RECORDS_MAX,
    show_default=True,
    help="Maximum records per task: longer ranges are split.",
)
@click.option(
    "--codec",
    type=click.Choice(CODECS),
    default="zstd",
    show_default=True,
    help="Compression of the Parquet files.",
)
@service_options
def load(
    job: JobOptions,
    log: LogOptions,
    topics: TopicOptions,
    fail_on_data_loss: bool,
    starting_offsets: str,
    records_max: int,
    codec: str,
    service: ServiceOptions,
) -> None:
    """Load new records of the log into a table, as Parquet files by topic, day and hour.

    Data and offsets become visible together, at the end of the load. A load that was killed, or
    whose commit lost against another load, has changed nothing: run it again.
    """
    from logbroker.client.raw import EARLIEST, LATEST
    from spark_jobs.jobs.load import LoadRequest
    from spark_jobs.jobs.load import load as run_load
    from spark_jobs.session import session_on_demand

    with exit_on_errors(), reporting_run("load", job.table, service.address()) as run:
        request = LoadRequest(
            properties=log.client_properties(),
            choice=topics.choice(),
            table=job.table,
            may_lose=not fail_on_data_loss,
            first_start=EARLIEST if starting_offsets == "earliest" else LATEST,
            records_max=records_max,
            codec=codec,
        )
        with session_on_demand("load", master=job.master) as session:
            try:
                report = run_load(request, session)
            except (DataLost, TopicReplaced) as loss:
                raise type(loss)(f"{loss}\n{_LOSS_ADVICE}") from loss
        run.summary = _summary(report)
    _print_report(report, as_json=job.as_json)


def _summary(report: "LoadReport") -> RunSummary:
    from spark_jobs.jobs.load_report import manifest_report

    found = manifest_report(report)
    names = ("records", "readBytes", "files", "fileBytes")
    return RunSummary(
        {
            "version": report.version,
            **{name: found[name] for name in names},
            "missing": report.missing_offsets,
            "replacedTopics": ", ".join(report.replaced) or None,
        },
        {
            topic: {**found["topics"].get(topic, {"records": 0}), "end": end}
            for topic, end in report.ends.items()
        },
    )


def _print_report(report: "LoadReport", *, as_json: bool) -> None:
    from spark_jobs.jobs.load_report import report_json, report_lines

    if as_json:
        echo_json(report_json(report))
        return
    for line in report_lines(report):
        click.echo(line)
