"""`logbroker topics`: create, list, describe and delete topics of a running broker."""

from dataclasses import asdict
from typing import Final

import click

from logbroker.cli.admin_command import (
    cluster_options,
    echo_json,
    json_option,
    one_line_errors,
)
from logbroker.cli.formats import table_lines
from logbroker.cli.topic_admin import (
    BROKER_DEFAULT,
    PARTITIONS_MAX,
    PartitionState,
    TopicAdmin,
    TopicState,
)

_HEADINGS: Final = (
    "PARTITION",
    "LEADER",
    "REPLICAS",
    "EARLIEST",
    "LATEST",
    "SIZE-BYTES",
    "FIRST-TIME",
    "NEWEST-TIME",
)


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
            raise click.BadParameter(f"invalid setting {pair!r}; expected NAME=VALUE", ctx, param)
        settings[name] = value
    return settings


@topics.command()
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1, PARTITIONS_MAX),
    help="Number of partitions. Default: the broker's setting.",
)
@click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_parse_settings,
    help="A topic setting, such as retention.ms=86400000; repeatable.",
)
@cluster_options
def create(
    name: str, partitions: int | None, settings: dict[str, str], bootstrap_servers: str
) -> None:
    """Create the topic NAME."""
    with one_line_errors(bootstrap_servers):
        TopicAdmin(bootstrap_servers).create(name, partitions or BROKER_DEFAULT, settings)
    click.echo(f"created topic {name}", err=True)


@topics.command("list")
@json_option
@cluster_options
def list_(bootstrap_servers: str, as_json: bool) -> None:
    """Print the name of every topic; as JSON with its partition count."""
    with one_line_errors(bootstrap_servers):
        counts = TopicAdmin(bootstrap_servers).partition_counts()
    if as_json:
        echo_json([{"name": name, "partitions": count} for name, count in counts.items()])
        return
    for name in counts:
        click.echo(name)


@topics.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@json_option
@cluster_options
def describe(names: tuple[str, ...], bootstrap_servers: str, as_json: bool) -> None:
    """Print the logs and the changed settings of topics; of all if none is named.

    Offsets from EARLIEST (inclusive) to LATEST (exclusive) can be read. SIZE-BYTES is the disk
    usage at the leader. FIRST-TIME is the time of the first message, NEWEST-TIME the greatest time
    of any message. Unknown values are `-`, and null in JSON: most of them if a partition has no
    leader, the times if it has no message.
    """
    with one_line_errors(bootstrap_servers):
        states = TopicAdmin(bootstrap_servers).describe(list(dict.fromkeys(names)))
    if as_json:
        echo_json([asdict(state) for state in states])
        return
    for state in states:
        _echo_topic(state)


@topics.command()
@click.argument("name")
@cluster_options
def delete(name: str, bootstrap_servers: str) -> None:
    """Delete the topic NAME and all its messages."""
    with one_line_errors(bootstrap_servers):
        TopicAdmin(bootstrap_servers).delete(name)
    click.echo(f"deleted topic {name}", err=True)


def _echo_topic(state: TopicState) -> None:
    settings = "".join(f" {name}={value}" for name, value in state.settings.items())
    click.echo(
        f"topic={state.name} id={state.topic_id} partitions={len(state.partitions)}{settings}"
    )
    rows = [_row(partition) for partition in state.partitions]
    for line in table_lines(_HEADINGS, rows):
        click.echo(line)


def _row(partition: PartitionState) -> list[object]:
    return [
        partition.partition,
        partition.leader,
        ",".join(map(str, partition.replicas)),
        partition.earliest,
        partition.latest,
        partition.size_bytes,
        partition.first_time,
        partition.newest_time,
    ]
