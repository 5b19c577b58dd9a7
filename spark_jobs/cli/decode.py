"""`rewind-jobs decode`: what has been loaded since, with Avro values turned into JSON."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spark_jobs.cli.options import (
    echo_json,
    json_option,
    master_option,
    name_list,
    plain_refusals,
    quarantine_option,
    table_option,
)
from spark_jobs.cli.run_reports import service_address, service_options, told
from spark_jobs.jobs.service import Facts

if TYPE_CHECKING:
    from spark_jobs.jobs.decode import Decoded


@click.command()
@table_option
@click.option("--decoded-table", metavar="URI", required=True, help="The table to add to.")
@quarantine_option
@click.option("--topics", metavar="TOPIC,...", default="", help="Of the table.  [default: all]")
@click.option(
    "--schema-registry",
    metavar="URL",
    envvar="REWIND_SCHEMA_REGISTRY",
    required=True,
    show_envvar=True,
    help="Where schemas are, such as http://HOST:8081; asked from here, once for each schema.",
)
@service_options
@master_option
@json_option
def decode(
    table: str,
    decoded_table: str,
    quarantine_table: str | None,
    topics: str,
    schema_registry: str,
    api: str | None,
    api_key_file: Path | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Decode what has been loaded since the last time: Avro by its schema, JSON as it is.

    What cannot be decoded goes to the quarantine, with the reason. A run that was killed has added
    nothing that the next one adds again.
    """
    from spark_jobs.jobs.decode import DecodeJob
    from spark_jobs.jobs.derived_tables import quarantine_of
    from spark_jobs.session import session_on_demand

    with plain_refusals(), told("decode", table, service_address(api, api_key_file)) as run:
        job = DecodeJob(
            table=table,
            decoded_table=decoded_table,
            quarantine_table=quarantine_table or quarantine_of(decoded_table),
            topics=name_list(topics),
            registry_url=schema_registry,
        )
        with session_on_demand("decode", master=master) as session:
            decoded = job.run(session)
        run.facts = Facts(decoded.as_json())
    if as_json:
        echo_json(decoded.as_json())
    else:
        click.echo(_line(decoded, decoded_table))


def _line(decoded: "Decoded", table: str) -> str:
    if decoded.version is None:
        return f"nothing new: {table} has all that was loaded when this run began"
    return (
        f"decoded {decoded.records} records; {decoded.schemas} schema ids were looked up; "
        f"{decoded.quarantined} in quarantine; {table} is at version {decoded.version}"
    )
