"""`logbroker topics`: create, list, describe and delete topics of a running broker."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Final

import click
from confluent_kafka import KafkaError, KafkaException

from logbroker.cli.topic_admin import (
    BROKER_DEFAULT,
    REQUEST_TIMEOUT_S,
    PartitionState,
    TopicAdmin,
    TopicState,
)

REFUSED: Final = 1

# Kafka's client says "waiting for controller" or "transport failure" where nobody listens.
_UNREACHABLE: Final = {"_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT", "_TRANSPORT"}

_bootstrap_servers = click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    default="127.0.0.1:9092",
    envvar="LOGBROKER_BOOTSTRAP_SERVERS",
    show_default=True,
    show_envvar=True,
    help="Where to find the cluster.",
)
_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def topics() -> None:
    """Create, list, describe and delete topics of a running broker."""


def _parse_settings(
    ctx: click.Context, param: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    settings = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise click.BadParameter(f"{pair!r} is no setting; allowed is NAME=VALUE", ctx, param)
        settings[name] = value
    return settings


@topics.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    help="How many partitions; the broker's default where absent.",
)
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parse_settings,
    help="A topic setting, such as retention.ms=86400000; repeatable.",
)
@_bootstrap_servers
def create(
    name: str, partitions: int | None, settings: dict[str, str], bootstrap_servers: str
) -> None:
    """Create the topic NAME."""
    with _one_line_errors(bootstrap_servers):
        TopicAdmin(bootstrap_servers).create(name, partitions or BROKER_DEFAULT, settings)
    click.echo(f"created topic {name}", err=True)


@topics.command("list")
@_as_json
@_bootstrap_servers
def list_(bootstrap_servers: str, as_json: bool) -> None:
    """Print the name of every topic; as JSON with its partition count."""
    with _one_line_errors(bootstrap_servers):
        counts = TopicAdmin(bootstrap_servers).partition_counts()
    if as_json:
        _echo_json([{"name": name, "partitions": count} for name, count in counts.items()])
        return
    for name in counts:
        click.echo(name)


@topics.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_as_json
@_bootstrap_servers
def describe(names: tuple[str, ...], bootstrap_servers: str, as_json: bool) -> None:
    """Print partitions, leaders, readable offsets and changed settings of topics.

    Offsets from `earliest` up to but without `latest` can be read.
    """
    with _one_line_errors(bootstrap_servers):
        states = TopicAdmin(bootstrap_servers).describe(list(dict.fromkeys(names)))
    if as_json:
        _echo_json([asdict(state) for state in states])
        return
    for state in states:
        _echo_topic(state)


@topics.command()
@click.argument("name")
@_bootstrap_servers
def delete(name: str, bootstrap_servers: str) -> None:
    """Delete the topic NAME and everything in it."""
    with _one_line_errors(bootstrap_servers):
        TopicAdmin(bootstrap_servers).delete(name)
    click.echo(f"deleted topic {name}", err=True)


@contextmanager
def _one_line_errors(bootstrap_servers: str) -> Iterator[None]:
    try:
        yield
    except KafkaException as exception:
        click.echo(f"logbroker: {_message(exception.args[0], bootstrap_servers)}", err=True)
        sys.exit(REFUSED)


def _message(error: KafkaError, bootstrap_servers: str) -> str:
    if error.name() in _UNREACHABLE:
        return f"no broker answers at {bootstrap_servers} within {REQUEST_TIMEOUT_S:g} s"
    return f"{error.str()} ({error.name()})"


def _echo_json(value: object) -> None:
    click.echo(json.dumps(value, indent=2))


def _echo_topic(state: TopicState) -> None:
    settings = "".join(f" {name}={value}" for name, value in state.settings.items())
    click.echo(
        f"topic={state.name} id={state.topic_id} partitions={len(state.partitions)}{settings}"
    )
    for partition in state.partitions:
        click.echo(f"  {_partition_line(partition)}")


def _partition_line(partition: PartitionState) -> str:
    fields = asdict(partition)
    return " ".join(
        f"{name}={'none' if value is None else value}" for name, value in fields.items()
    )
