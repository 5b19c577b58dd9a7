"""Shared parts of commands that send requests to a cluster: options, client and errors."""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from logbroker.cli.client_config import CLIENT_CONFIG
from logbroker.cli.formats import REFUSED, refuse
from logbroker.errors import LogbrokerError
from logbroker.property_file import read_property_file

_log: Final = logging.getLogger(__name__)

REQUEST_TIMEOUT_S: Final = 10.0

# Kafka's client reports a closed port as "waiting for controller" or "transport failure".
UNREACHABLE: Final = frozenset({"_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"})
"""Names of the client's errors that mean that no broker answers."""

bootstrap_servers_option = click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    default="127.0.0.1:9092",
    envvar="LOGBROKER_BOOTSTRAP_SERVERS",
    show_default=True,
    show_envvar=True,
    help="Brokers of the cluster.",
)
_CONFIG_KEY: Final = f"{__name__}.client_config"


def _keep_client_config(
    context: click.Context, _option: click.Parameter, path: Path | None
) -> None:
    context.meta[_CONFIG_KEY] = path


_client_config_option = click.option(
    "--client-config",
    type=CLIENT_CONFIG,
    envvar="LOGBROKER_CLIENT_CONFIG",
    show_envvar=True,
    expose_value=False,
    callback=_keep_client_config,
    help="File of librdkafka properties, such as those of TLS and SASL.",
)


def cluster_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say how to reach the cluster; `admin_client` uses the properties."""
    return bootstrap_servers_option(_client_config_option(command))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class CommandRefused(Exception):
    """A command cannot be executed; the message is one line with the reason."""


def admin_client(bootstrap_servers: str) -> AdminClient:
    """Return an admin client for the running command, with the properties of `--client-config`.

    Raises:
        ConfigurationError: the file of properties cannot be read.
        KafkaException: a property is not valid.
    """
    # Without a logger the client would write to stderr by itself.
    properties: dict[str, Any] = {**client_properties(), "bootstrap.servers": bootstrap_servers}
    return AdminClient(properties, logger=_log)


def client_properties() -> dict[str, str]:
    """Return the properties of `--client-config` of the running command; none without either.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    context = click.get_current_context(silent=True)
    path = None if context is None else context.meta.get(_CONFIG_KEY)
    return {} if path is None else read_property_file("--client-config", path)


@contextmanager
def one_line_errors(bootstrap_servers: str, exit_code: int = REFUSED) -> Iterator[None]:
    """Print an error in one line on stderr, and exit with `exit_code`."""
    # Clients log every attempt to connect; their exceptions are enough.
    logging.basicConfig(handlers=[logging.NullHandler()])
    try:
        yield
    except KafkaException as exception:
        refuse(_message(exception.args[0], bootstrap_servers), exit_code)
    except (CommandRefused, LogbrokerError) as refusal:
        refuse(refusal, exit_code)


def echo_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))


def _message(error: KafkaError, bootstrap_servers: str) -> str:
    if error.name() in UNREACHABLE:
        return f"no broker answers at {bootstrap_servers} within {REQUEST_TIMEOUT_S:g} s"
    return f"{error.str()} ({error.name()})"
