"""`rewind-jobs windowed-counts`: events per type and window, while they come."""

from pathlib import Path

import click

from spark_jobs.cli.options import (
    bootstrap_servers_option,
    client_config_option,
    client_properties,
    json_option,
    master_option,
    plain_refusals,
    quarantine_option,
    table_option,
)
from spark_jobs.cli.stream_options import (
    BatchTotals,
    Duration,
    session_settings,
    stream_options,
    stream_run,
)


@click.command()
@bootstrap_servers_option
@click.option(
    "--topics", metavar="TOPIC,...", default="events", show_default=True, help="What is counted."
)
@table_option
@quarantine_option
@click.option(
    "--to-topic",
    metavar="TOPIC",
    help="Publish counts as well, at least once each: of a key, the last value counts.",
)
@click.option(
    "--window",
    "window_s",
    type=Duration(1),
    default="1 minute",
    show_default=True,
    help="How long a window is.",
)
@click.option(
    "--watermark",
    "watermark_s",
    type=Duration(0),
    default="10 minutes",
    show_default=True,
    help="How much later than the latest event one may come and be counted. Windows are written "
    "when no such event can come any more.",
)
@stream_options
@client_config_option
@master_option
@json_option
def windowed_counts(
    bootstrap_servers: str,
    topics: str,
    table: str,
    quarantine_table: str | None,
    to_topic: str | None,
    window_s: int,
    watermark_s: int,
    checkpoint: str,
    available_now: bool,
    trigger_s: int | None,
    starting_offsets: str,
    offsets_max: int | None,
    fail_on_data_loss: bool,
    state_partitions: int,
    client_config: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Count events per type and window of their own time, to a table and maybe to a topic.

    The table has each window once, whatever crashes. Events that come too late are in no window,
    and their number is told. An event's type is its header event-type, or else the member `type`
    of its JSON object; what has neither goes to the quarantine.
    """
    from spark_jobs.jobs.derived_tables import quarantine_of
    from spark_jobs.jobs.streaming import StreamSource
    from spark_jobs.jobs.windowed_counts.job import CountedBatch, WindowedCounts
    from spark_jobs.session import running_session

    totals = BatchTotals(CountedBatch._fields[1:])
    with plain_refusals():
        job = WindowedCounts(
            source=StreamSource(
                client_properties(bootstrap_servers, client_config),
                starting_offsets,
                fail_on_data_loss,
                offsets_max,
            ),
            topics=topics,
            run=stream_run(checkpoint, trigger_s, available_now=available_now),
            table=table,
            quarantine_table=quarantine_table or quarantine_of(table),
            window_s=window_s,
            watermark_s=watermark_s,
            to_topic=to_topic,
        )
        settings = session_settings(state_partitions)
        with running_session("windowed-counts", master=master, settings=settings) as session:
            job.count(session, totals.tell)
    totals.show(as_json=as_json)
