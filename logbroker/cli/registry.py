"""`logbroker registry`: serve Avro schemas, stored in the log, until a signal."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
from logbroker.option_group import option_group

if TYPE_CHECKING:
    from logbroker.schemas.access import RequestAccess
    from logbroker.security.tls import TlsFiles


@dataclass(frozen=True)
class AccessOptions:
    """The options that decide who may use the registry."""

    users_file: Path | None
    tls_certfile: Path | None
    tls_keyfile: Path | None
    tls_client_ca_file: Path | None
    allowed_hosts: str | None
    insecure: bool

    def expect_valid(self, listen_host: str) -> None:
        """Check what is used together.

        Raises:
            click.UsageError: an option needs another one.
        """
        from logbroker.listeners import is_loopback

        if (self.tls_certfile is None) != (self.tls_keyfile is None):
            raise click.UsageError("--tls-certfile and --tls-keyfile are used together")
        if self.tls_client_ca_file is not None and self.tls_certfile is None:
            raise click.UsageError("--tls-client-ca-file requires --tls-certfile")
        is_authenticated = self.users_file is not None or self.tls_client_ca_file is not None
        if not (is_authenticated or self.insecure or is_loopback(listen_host)):
            raise click.UsageError(
                f"{listen_host} is reachable from other machines, and every client could change "
                "schemas: use --users-file or --tls-client-ca-file, or allow it with --insecure"
            )

    def requests(self, listen_host: str) -> "RequestAccess":
        """Who may send what.

        Raises:
            ConfigurationError: the file of users is invalid.
        """
        from logbroker.schemas.access import RequestAccess, UsersFile, allowed_hosts

        users = None if self.users_file is None else UsersFile(self.users_file)
        return RequestAccess(
            users, allowed_hosts(listen_host, (self.allowed_hosts or "").split(","))
        )

    def tls(self) -> "TlsFiles | None":
        """The files for TLS, if it is used."""
        from logbroker.security.tls import TlsFiles

        if self.tls_certfile is None or self.tls_keyfile is None:
            return None
        return TlsFiles(self.tls_certfile, self.tls_keyfile, self.tls_client_ca_file)


_access_options = option_group(
    "access",
    AccessOptions,
    click.option(
        "--users-file",
        type=CLIENT_CONFIG,
        envvar="LOGBROKER_REGISTRY_USERS_FILE",
        show_envvar=True,
        help="File of lines NAME: PASSWORD, ROLE with the role read or write. Without it, every "
        "client may register and delete schemas.",
    ),
    click.option(
        "--tls-certfile",
        type=CLIENT_CONFIG,
        envvar="LOGBROKER_REGISTRY_TLS_CERTFILE",
        show_envvar=True,
        help="PEM file with the certificate and its chain; together with --tls-keyfile.",
    ),
    click.option(
        "--tls-keyfile",
        type=CLIENT_CONFIG,
        envvar="LOGBROKER_REGISTRY_TLS_KEYFILE",
        show_envvar=True,
        help="PEM file with the key of the certificate.",
    ),
    click.option(
        "--tls-client-ca-file",
        type=CLIENT_CONFIG,
        envvar="LOGBROKER_REGISTRY_TLS_CLIENT_CA_FILE",
        show_envvar=True,
        help="PEM file: only clients with a certificate of these CAs can connect.",
    ),
    click.option(
        "--allowed-hosts",
        envvar="LOGBROKER_REGISTRY_ALLOWED_HOSTS",
        show_envvar=True,
        help="Comma-separated names that clients may use for this server. On loopback, localhost "
        "and its addresses are allowed without it; elsewhere, all names are.",
    ),
    click.option(
        "--insecure",
        is_flag=True,
        envvar="LOGBROKER_REGISTRY_INSECURE",
        show_envvar=True,
        help="Listen beyond loopback without authentication: every client that reaches the port "
        "may register and delete schemas.",
    ),
)


@click.command()
@bootstrap_servers_option
@click.option(
    "--listen",
    type=AddressParam(),
    default="127.0.0.1:8081",
    envvar="LOGBROKER_REGISTRY_LISTEN",
    show_default=True,
    show_envvar=True,
    help="Address to listen on; with port 0 the system chooses one. Beyond loopback, it needs "
    "--users-file, --tls-client-ca-file or --insecure.",
)
@_access_options
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
    access: AccessOptions,
) -> None:
    """Serve the REST interface of Confluent's Schema Registry until SIGTERM or Ctrl-C.

    Schemas are stored in the topic `_schemas`. The line `logbroker registry ready on HOST:PORT` on
    standard error reports that all of it was read.
    """
    from logbroker.schemas.client_properties import RULES
    from logbroker.schemas.journal import SchemaJournal
    from logbroker.schemas.server import RegistryServer

    access.expect_valid(listen[0])
    configure_logging(log_format, root_level=logging.INFO)
    try:
        properties = read_client_config("--client-config", client_config, RULES)
        requests, tls = access.requests(listen[0]), access.tls()
        journal = SchemaJournal(bootstrap_servers, properties=properties)
        server = RegistryServer(journal, *listen, is_read_only=read_only, access=requests, tls=tls)
        if stop_on_stdin_close:
            stop_at_end_of_stdin(server.stop)
        server.run()
    except LogbrokerError as error:
        refuse(error)
