"""`rewind-jobs windowed-counts`: counts events per type and window continuously."""

import click

from spark_jobs.cli.options import (
    JobOptions,
    LogOptions,
    exit_on_errors,
    job_options,
    log_options,
    quarantine_option,
)
from spark_jobs.cli.stream_options import BatchTotals, Duration, QueryOptions, query_options


@click.command()
@job_options
@log_options
@click.option(
    "--topics", metavar="TOPIC,...", default="events", show_default=True, help="Topics to count."
)
@quarantine_option
@click.option(
    "--to-topic",
    metavar="TOPIC",
    help="Also publish counts to this topic, at least once: the last value of a key counts.",
)
@click.option(
    "--window",
    "window_s",
    type=Duration(1),
    default="1 minute",
    show_default=True,
    help="Length of a window.",
)
@click.option(
    "--watermark",
    "watermark_s",
    type=Duration(0),
    default="10 minutes",
    show_default=True,
    help="How much older than the latest event a counted event may be. A window is written once "
    "the watermark has passed its end.",
)
@query_options
def windowed_counts(
    job: JobOptions,
    log: LogOptions,
    topics: str,
    quarantine_table: str | None,
    to_topic: str | None,
    window_s: int,
    watermark_s: int,
    query: QueryOptions,
) -> None:
    """Count events per type and window of event time, into a table and optionally a topic.

    The table has each window exactly once. Events behind the watermark are in no window; their
    number is reported. The type of an event is its header event-type, or else the member `type`
    of its JSON object. Records without a type go to the quarantine.
    """
    from spark_jobs.jobs.derived_tables import quarantine_uri
    from spark_jobs.jobs.windowed_counts.job import CountedBatch, WindowedCounts
    from spark_jobs.session import running_session

    totals = BatchTotals(CountedBatch._fields[1:])
    with exit_on_errors():
        counting = WindowedCounts(
            source=query.source(log.client_properties()),
            topics=topics,
            run=query.run(),
            table=job.table,
            quarantine_table=quarantine_table or quarantine_uri(job.table),
            window_s=window_s,
            watermark_s=watermark_s,
            to_topic=to_topic,
        )
        settings = query.session_settings()
        with running_session("windowed-counts", master=job.master, settings=settings) as session:
            counting.run_query(session, totals.print_batch)
    totals.print_totals(as_json=job.as_json)
