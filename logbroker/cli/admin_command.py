"""What every command that asks a cluster shares: where it is, its client, how it says no."""

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

# Kafka's client says "waiting for controller" or "transport failure" where nobody listens.
UNREACHABLE: Final = frozenset({"_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"})
"""Names of the client's errors that say that a broker does not answer."""

bootstrap_servers_option = click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    default="127.0.0.1:9092",
    envvar="LOGBROKER_BOOTSTRAP_SERVERS",
    show_default=True,
    show_envvar=True,
    help="Where to find the cluster.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class CommandRefused(Exception):
    """A command cannot do what it is asked; the message is one line that says why."""


def admin_client(bootstrap_servers: str) -> AdminClient:
    """A client of the cluster; without a logger it would write to standard error by itself."""
    return AdminClient({"bootstrap.servers": bootstrap_servers}, logger=_log)


@contextmanager
def one_line_errors(bootstrap_servers: str, exit_code: int = REFUSED) -> Iterator[None]:
    """Tell a refusal in one line on standard error, and end with `exit_code`."""
    # Clients log every attempt to connect; their exceptions say it once.
    logging.basicConfig(handlers=[logging.NullHandler()])
    try:
        yield
    except KafkaException as exception:
        refuse(_message(exception.args[0], bootstrap_servers), exit_code)
    except (CommandRefused, LogbrokerError) as refusal:
        refuse(refusal, exit_code)


def echo_json(value: object) -> None:
    """Print a value for scripts."""
    click.echo(json.dumps(value, indent=2))


def _message(error: KafkaError, bootstrap_servers: str) -> str:
    if error.name() in UNREACHABLE:
        return f"no broker answers at {bootstrap_servers} within {REQUEST_TIMEOUT_S:g} s"
    return f"{error.str()} ({error.name()})"
