"""Options that several commands share, and how commands report errors."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import click

from logbroker.errors import ConfigurationError
from logbroker.option_group import option_group
from spark_jobs.errors import InvalidOption, PipelineError

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The table of a job, Spark's master, and the format of the report."""

    table: str
    master: str | None
    as_json: bool


job_options = option_group(
    "job",
    JobOptions,
    click.option(
        "--table",
        metavar="URI",
        required=True,
        help="URI of the table: a folder that all machines share (/PATH, file:///PATH), or "
        "hdfs://HOST:PORT/PATH.",
    ),
    click.option(
        "--master",
        metavar="MASTER",
        help="Spark master, such as spark://HOST:7077, yarn or local[2]. Omit with spark-submit, "
        "which sets it.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print JSON."),
)


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How to connect to the log."""

    bootstrap_servers: str
    client_config: Path | None

    def client_properties(self) -> dict[str, str]:
        """The properties of the Kafka client.

        Raises:
            InvalidOption: the file has a line that is not a property.
        """
        properties: dict[str, str] = {}
        try:
            if self.client_config is not None:
                from logbroker.property_file import read_property_file

                properties = read_property_file("--client-config", self.client_config)
        except ConfigurationError as error:
            raise InvalidOption(str(error)) from error
        return {**properties, "bootstrap.servers": self.bootstrap_servers}


log_options = option_group(
    "log",
    LogOptions,
    click.option(
        "--bootstrap-servers",
        metavar="HOST:PORT,...",
        envvar="REWIND_BOOTSTRAP_SERVERS",
        required=True,
        show_envvar=True,
        help="Addresses of brokers.",
    ),
    click.option(
        "--client-config",
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        help="A file of NAME=VALUE properties for the Kafka client, such as TLS and SASL settings. "
        "Files that it names must exist on every machine that runs tasks.",
    ),
)

quarantine_option = click.option(
    "--quarantine-table",
    metavar="URI",
    help="Table of unreadable records.  [default: the output table's URI with _quarantine]",
)
origin_option = click.option(
    "--origin",
    metavar="NAME",
    envvar="REWIND_ORIGIN",
    default="local",
    show_default=True,
    show_envvar=True,
    help="Data centre of this log: the value of REWIND_ORIGIN in the service.",
)


def split_names(names: str) -> tuple[str, ...]:
    """The distinct names of a comma-separated list."""
    return tuple(dict.fromkeys(filter(None, (name.strip() for name in names.split(",")))))


def compile_pattern(option: str, pattern: str) -> re.Pattern[str]:
    """The regular expression that is the value of `option`.

    Raises:
        InvalidOption: it does not compile.
    """
    try:
        return re.compile(pattern)
    except re.error as error:
        raise InvalidOption(
            f"{option} is {pattern!r}; allowed are regular expressions: {error}"
        ) from error


def exit_with_error(reasons: object, exit_code: int = EXIT_FAILURE) -> NoReturn:
    """Print each line of the reasons to standard error, and exit."""
    for line in str(reasons).splitlines():
        click.echo(f"rewind-jobs: {line}", err=True)
    sys.exit(exit_code)


@contextmanager
def exit_on_errors() -> Iterator[None]:
    """Print a pipeline error without a traceback, and exit with its code."""
    try:
        yield
    except InvalidOption as error:
        exit_with_error(error, EXIT_USAGE)
    except PipelineError as error:
        exit_with_error(error)


def echo_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(json.dumps(value, indent=2))
