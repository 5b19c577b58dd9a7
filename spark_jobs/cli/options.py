"""What the commands share: where the log is, where a table is, which Spark, and how they say no."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import click

from logbroker.errors import ConfigurationError
from spark_jobs.errors import InvalidOption, PipelineError

CLIENT_CONFIG: Final = click.Path(path_type=Path, exists=True, dir_okay=False)

bootstrap_servers_option = click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    envvar="REWIND_BOOTSTRAP_SERVERS",
    required=True,
    show_envvar=True,
    help="Where to find the log.",
)
client_config_option = click.option(
    "--client-config",
    type=CLIENT_CONFIG,
    help="A file of NAME=VALUE lines for the Kafka client, such as of TLS and SASL. Files that it "
    "names have to be on every machine that runs tasks.",
)
table_option = click.option(
    "--table",
    metavar="URI",
    required=True,
    help="The table: a folder that every machine has (/PATH, file:///PATH), or "
    "hdfs://HOST:PORT/PATH.",
)
master_option = click.option(
    "--master",
    metavar="MASTER",
    help="Spark's master, such as spark://HOST:7077, yarn, local[2]; spark-submit has its own.",
)
quarantine_option = click.option(
    "--quarantine-table",
    metavar="URI",
    help="The table of what cannot be read.  [default: beside the other, with _quarantine]",
)
origin_option = click.option(
    "--origin",
    metavar="NAME",
    envvar="REWIND_ORIGIN",
    default="local",
    show_default=True,
    show_envvar=True,
    help="The data centre whose log this is, as the service has it in REWIND_ORIGIN.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def client_properties(bootstrap_servers: str, client_config: Path | None) -> dict[str, str]:
    """The properties of the Kafka client, by both options.

    Raises:
        InvalidOption: the file has a line that is no property.
    """
    properties: dict[str, str] = {}
    try:
        if client_config is not None:
            from logbroker.client.properties import read_lines

            properties = read_lines("--client-config", client_config)
    except ConfigurationError as error:
        raise InvalidOption(str(error)) from error
    return {**properties, "bootstrap.servers": bootstrap_servers}


def name_list(names: str) -> tuple[str, ...]:
    """The names of a list with commas between them."""
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))


def regex(option: str, pattern: str) -> re.Pattern[str]:
    """The pattern that `option` names.

    Raises:
        InvalidOption: it is none.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidOption(f"{option} is {pattern!r}, which is no pattern: {error}") from error


@contextmanager
def plain_refusals() -> Iterator[None]:
    """Tell an error of the pipeline in one line on standard error, and end with its exit code."""
    try:
        yield
    except InvalidOption as error:
        refuse(error, MISUSED)
    except PipelineError as error:
        refuse(error)


def echo_json(value: object) -> None:
    """Print a value for scripts."""
    click.echo(json.dumps(value, indent=2))


REFUSED: Final = 1
MISUSED: Final = 2


def refuse(reasons: object, exit_code: int = REFUSED) -> NoReturn:
    """Tell the reasons, one a line, and end."""
    for line in str(reasons).splitlines():
        click.echo(f"rewind-jobs: {line}", err=True)
    sys.exit(exit_code)
