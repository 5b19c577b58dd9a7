"""Shared parts of commands that send requests to a cluster: options, client and errors."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import click
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from logbroker.cli.formats import REFUSED, refuse
from logbroker.errors import LogbrokerError

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
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class CommandRefused(Exception):
    """A command cannot be executed; the message is one line with the reason."""


def admin_client(bootstrap_servers: str) -> AdminClient:
    """Return an admin client; without a logger it would write to stderr by itself."""
    return AdminClient({"bootstrap.servers": bootstrap_servers}, logger=_log)


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
