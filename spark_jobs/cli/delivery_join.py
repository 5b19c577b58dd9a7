"""`rewind-jobs delivery-join`: joins deliveries with their outcomes continuously."""

import click

from spark_jobs.cli.options import (
    JobOptions,
    LogOptions,
    exit_on_errors,
    job_options,
    log_options,
    origin_option,
    quarantine_option,
)
from spark_jobs.cli.stream_options import BatchTotals, Duration, QueryOptions, query_options


@click.command()
@job_options
@log_options
@quarantine_option
@origin_option
@click.option(
    "--within",
    "within_s",
    type=Duration(1),
    default="15 minutes",
    show_default=True,
    help="How long after its event time an event waits for its outcome. Choose more than the live "
    "path needs for all attempts.",
)
@click.option(
    "--watermark",
    "watermark_s",
    type=Duration(0),
    default="20 minutes",
    show_default=True,
    help="How much older than the latest one an event or outcome may be; at least --within plus "
    "five minutes. Older ones are dropped and not counted.",
)
@query_options
def delivery_join(
    job: JobOptions,
    log: LogOptions,
    quarantine_table: str | None,
    origin: str,
    within_s: int,
    watermark_s: int,
    query: QueryOptions,
) -> None:
    """Join each event of delivery_log with its outcome, one row per event.

    The table has each event of this data centre exactly once: with its first outcome and the
    delay, or without an outcome if there was none in time. Events behind --watermark have no row;
    delivery-report counts them.
    """
    from spark_jobs.jobs.delivery_join import DeliveryJoin, JoinedBatch
    from spark_jobs.jobs.derived_tables import quarantine_uri
    from spark_jobs.session import running_session

    totals = BatchTotals(JoinedBatch._fields[1:])
    with exit_on_errors():
        join = DeliveryJoin(
            source=query.source(log.client_properties()),
            run=query.run(),
            table=job.table,
            quarantine_table=quarantine_table or quarantine_uri(job.table),
            origin=origin,
            within_s=within_s,
            watermark_s=watermark_s,
        )
        settings = query.session_settings()
        with running_session("delivery-join", master=job.master, settings=settings) as session:
            join.run_query(session, totals.print_batch)
    totals.print_totals(as_json=job.as_json)
