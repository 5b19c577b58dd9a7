"""`logbroker registry`: serve Avro schemas, kept in the log, until a signal ends it."""

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
    help="Where to listen; port 0 lets the system choose. There are no passwords: whoever "
    "reaches it may register and delete.",
)
@click.option(
    "--client-config",
    type=CLIENT_CONFIG,
    envvar="LOGBROKER_REGISTRY_CLIENT_CONFIG",
    show_envvar=True,
    help="A file of NAME=VALUE lines for the clients of the log, with librdkafka's names.",
)
@click.option(
    "--read-only",
    is_flag=True,
    envvar="LOGBROKER_REGISTRY_READ_ONLY",
    show_envvar=True,
    help="Refuse changes: for a log that a mirror brings from where they are made.",
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

    Schemas live in the topic `_schemas`. The line `logbroker registry ready on HOST:PORT` on
    standard error says that all of it was read.
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
