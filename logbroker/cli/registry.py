"""`logbroker registry`: serve Avro schemas, stored in the log, until a signal."""

import logging
from pathlib import Path

import click

from logbroker.cli.admin_command import bootstrap_servers_option
from logbroker.cli.client_config import CLIENT_CONFIG, read_client_config
from logbroker.cli.formats import refuse
from logbroker.cli.server_command import (
    AddressParam,
    log_format_option,
    stop_at_end_of_stdin,
    stop_on_stdin_close_option,
)
from logbroker.errors import LogbrokerError
from logbroker.json_log import configure_logging


@click.command()
@bootstrap_servers_option
@click.option(
    "--listen",
    type=AddressParam(),
    default="127.0.0.1:8081",
    envvar="LOGBROKER_REGISTRY_LISTEN",
    show_default=True,
    show_envvar=True,
    help="Address to listen on; with port 0 the system chooses one. There is no authentication: "
    "every client may register and delete schemas.",
)
@click.option(
    "--client-config",
    type=CLIENT_CONFIG,
    envvar="LOGBROKER_REGISTRY_CLIENT_CONFIG",
    show_envvar=True,
    help="File of NAME=VALUE lines for the clients of the log, with librdkafka's names.",
)
@click.option(
    "--read-only",
    is_flag=True,
    envvar="LOGBROKER_REGISTRY_READ_ONLY",
    show_envvar=True,
    help="Reject changes: for a log that a mirror copies from another registry.",
)
@log_format_option
@stop_on_stdin_close_option
def registry(
    bootstrap_servers: str,
    listen: tuple[str, int],
    client_config: Path | None,
    read_only: bool,
    log_format: str,
    stop_on_stdin_close: bool,
) -> None:
    """Serve the REST interface of Confluent's Schema Registry until SIGTERM or Ctrl-C.

    Schemas are stored in the topic `_schemas`. The line `logbroker registry ready on HOST:PORT` on
    standard error reports that all of it was read.
    """
    from logbroker.schemas.client_properties import RULES
    from logbroker.schemas.journal import SchemaJournal
    from logbroker.schemas.server import RegistryServer

    configure_logging(log_format, root_level=logging.INFO)
    try:
        properties = read_client_config("--client-config", client_config, RULES)
        journal = SchemaJournal(bootstrap_servers, properties=properties)
        server = RegistryServer(journal, *listen, is_read_only=read_only)
        if stop_on_stdin_close:
            stop_at_end_of_stdin(server.stop)
        server.run()
    except LogbrokerError as error:
        refuse(error)
