"""`rewind-jobs delivery-join`: each owed event with what became of it, while they come."""

from pathlib import Path

import click

from spark_jobs.cli.options import (
    bootstrap_servers_option,
    client_config_option,
    client_properties,
    json_option,
    master_option,
    origin_option,
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
@table_option
@quarantine_option
@origin_option
@click.option(
    "--within",
    "within_s",
    type=Duration(1),
    default="15 minutes",
    show_default=True,
    help="How long after its own time an event may be settled. Longer than the attempts of the "
    "live path take, with their waits.",
)
@click.option(
    "--watermark",
    "watermark_s",
    type=Duration(0),
    default="20 minutes",
    show_default=True,
    help="How far behind the latest one an event, or an outcome, may come; at least --within and "
    "five minutes. What comes later is left out, and not counted.",
)
@stream_options
@client_config_option
@master_option
@json_option
def delivery_join(
    bootstrap_servers: str,
    table: str,
    quarantine_table: str | None,
    origin: str,
    within_s: int,
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
    """Join events with their outcomes as they come, a row for each event.

    The table has each event of this data centre once, whatever crashes: with its first outcome and
    the delay, or without an outcome, if it was not settled in time. An event that comes later than
    --watermark allows has no row; delivery-report counts it.
    """
    from spark_jobs.jobs.delivery_join import DeliveryJoin, JoinedBatch
    from spark_jobs.jobs.derived_tables import quarantine_of
    from spark_jobs.jobs.streaming import StreamSource
    from spark_jobs.session import running_session

    totals = BatchTotals(JoinedBatch._fields[1:])
    with plain_refusals():
        job = DeliveryJoin(
            source=StreamSource(
                client_properties(bootstrap_servers, client_config),
                starting_offsets,
                fail_on_data_loss,
                offsets_max,
            ),
            run=stream_run(checkpoint, trigger_s, available_now=available_now),
            table=table,
            quarantine_table=quarantine_table or quarantine_of(table),
            origin=origin,
            within_s=within_s,
            watermark_s=watermark_s,
        )
        settings = session_settings(state_partitions)
        with running_session("delivery-join", master=master, settings=settings) as session:
            job.join(session, totals.tell)
    totals.show(as_json=as_json)
