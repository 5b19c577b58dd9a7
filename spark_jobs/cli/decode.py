"""`rewind-jobs decode`: decodes newly loaded Avro values to JSON."""

from typing import TYPE_CHECKING

import click

from spark_jobs.cli.options import (
    JobOptions,
    echo_json,
    exit_on_errors,
    job_options,
    quarantine_option,
    split_names,
)
from spark_jobs.cli.run_reports import ServiceOptions, reporting_run, service_options
from spark_jobs.jobs.service import RunSummary

if TYPE_CHECKING:
    from spark_jobs.jobs.decode import DecodeReport


@click.command()
@job_options
@click.option(
    "--decoded-table", metavar="URI", required=True, help="Table for the decoded records."
)
@quarantine_option
@click.option(
    "--topics",
    metavar="TOPIC,...",
    default="",
    help="Topics of the table to decode.  [default: all]",
)
@click.option(
    "--schema-registry",
    metavar="URL",
    envvar="REWIND_SCHEMA_REGISTRY",
    required=True,
    show_envvar=True,
    help="URL of the schema registry, such as http://HOST:8081. Only the driver sends requests, "
    "one per schema.",
)
@service_options
def decode(
    job: JobOptions,
    decoded_table: str,
    quarantine_table: str | None,
    topics: str,
    schema_registry: str,
    service: ServiceOptions,
) -> None:
    """Decode records loaded since the last run: Avro by its schema, JSON unchanged.

    Records that cannot be decoded go to the quarantine, with the reason. After a killed run, the
    next one adds each record exactly once.
    """
    from spark_jobs.jobs.decode import DecodeJob
    from spark_jobs.jobs.derived_tables import quarantine_uri
    from spark_jobs.session import session_on_demand

    with exit_on_errors(), reporting_run("decode", job.table, service.address()) as run:
        decoding = DecodeJob(
            table=job.table,
            decoded_table=decoded_table,
            quarantine_table=quarantine_table or quarantine_uri(decoded_table),
            topics=split_names(topics),
            registry_url=schema_registry,
        )
        with session_on_demand("decode", master=job.master) as session:
            report = decoding.run(session)
        run.summary = RunSummary(report.as_json())
    if job.as_json:
        echo_json(report.as_json())
    else:
        click.echo(_report_line(report, decoded_table))


def _report_line(report: "DecodeReport", table: str) -> str:
    if report.version is None:
        return f"no new records: {table} is up to date"
    return (
        f"decoded {report.records} records with {report.schemas} schema ids; "
        f"{report.quarantined} in quarantine; {table} is at version {report.version}"
    )
