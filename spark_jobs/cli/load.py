"""`rewind-jobs load`: what the log has had since the last load, into a table."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from spark_jobs.cli.options import (
    bootstrap_servers_option,
    client_config_option,
    client_properties,
    echo_json,
    json_option,
    master_option,
    name_list,
    plain_refusals,
    regex,
    table_option,
)
from spark_jobs.cli.run_reports import service_address, service_options, told
from spark_jobs.errors import DataLost, InvalidOption, TopicReplaced
from spark_jobs.jobs.defaults import CODECS, RECORDS_MAX
from spark_jobs.jobs.service import Facts

if TYPE_CHECKING:
    from spark_jobs.jobs.load_report import LoadReport
    from spark_jobs.offsets.limits import Matching, Subscribed

_WAYS_ON: Final = (
    "nothing was loaded; with --no-fail-on-data-loss the load goes on with what there is, tells "
    "how many offsets are missing, notes for later loads that a topic is gone, and begins one that "
    "was made anew at its first offset; another --table keeps such a topic apart from what it was "
    "before"
)


@click.command()
@bootstrap_servers_option
@click.option("--topics", metavar="TOPIC,...", help="Load these topics.")
@click.option(
    "--subscribe-pattern",
    metavar="REGEX",
    help="Load the topics in whose name it is found, also those that come up later.",
)
@table_option
@client_config_option
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="Stop when the log has deleted what is due, cannot give it whole, or has a topic that was "
    "made anew; or go on, and tell what is missing.",
)
@click.option(
    "--starting-offsets",
    type=click.Choice(["earliest", "latest"]),
    default="earliest",
    show_default=True,
    help="Where the first load into a table begins. Later ones begin where the last one ended; "
    "topics and partitions that come up are loaded from their first offset.",
)
@click.option(
    "--max-records-per-partition",
    "records_max",
    type=click.IntRange(1),
    default=RECORDS_MAX,
    show_default=True,
    help="Of a task: longer ranges are shared out.",
)
@click.option(
    "--codec",
    type=click.Choice(CODECS),
    default="zstd",
    show_default=True,
    help="Of the Parquet files.",
)
@service_options
@master_option
@json_option
def load(
    bootstrap_servers: str,
    topics: str | None,
    subscribe_pattern: str | None,
    table: str,
    client_config: Path | None,
    fail_on_data_loss: bool,
    starting_offsets: str,
    records_max: int,
    codec: str,
    api: str | None,
    api_key_file: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Load what the log has had since the last load into a table, as Parquet by topic and hour.

    Data and offsets become visible together, and only at the end. A load that was killed, or that
    another one was quicker than, has changed nothing: run it again.
    """
    from logbroker.client.raw import EARLIEST, LATEST
    from spark_jobs.jobs.load import LoadRequest
    from spark_jobs.jobs.load import load as run_load
    from spark_jobs.session import session_on_demand

    with plain_refusals(), told("load", table, service_address(api, api_key_file)) as run:
        request = LoadRequest(
            properties=client_properties(bootstrap_servers, client_config),
            choice=_choice(topics, subscribe_pattern),
            table=table,
            may_lose=not fail_on_data_loss,
            first_start=EARLIEST if starting_offsets == "earliest" else LATEST,
            records_max=records_max,
            codec=codec,
        )
        with session_on_demand("load", master=master) as session:
            try:
                report = run_load(request, session)
            except (DataLost, TopicReplaced) as loss:
                raise type(loss)(f"{loss}\n{_WAYS_ON}") from loss
        run.facts = _facts(report)
    _tell(report, as_json)


def _choice(topics: str | None, pattern: str | None) -> "Subscribed | Matching":
    from spark_jobs.offsets.limits import Matching, Subscribed

    if (topics is None) == (pattern is None):
        raise InvalidOption("one of --topics and --subscribe-pattern says what to load")
    if pattern is not None:
        return Matching(regex("--subscribe-pattern", pattern))
    names = name_list(topics or "")
    if not names:
        raise InvalidOption("--topics is empty")
    return Subscribed(names)


def _facts(report: "LoadReport") -> Facts:
    from spark_jobs.jobs.load_report import facts

    found = facts(report)
    names = ("records", "readBytes", "files", "fileBytes")
    return Facts(
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


def _tell(report: "LoadReport", as_json: bool) -> None:
    from spark_jobs.jobs.load_report import document, lines

    if as_json:
        echo_json(document(report))
        return
    for line in lines(report):
        click.echo(line)
