"""`logbroker quotas`: set, list and remove the quotas of users, client ids and IP addresses."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import click

from logbroker.cli.admin_command import (
    REQUEST_TIMEOUT_S,
    client_properties,
    cluster_options,
    echo_json,
    json_option,
    one_line_errors,
)
from logbroker.cli.formats import table_lines
from logbroker.quotas.entities import DEFAULT, QuotaEntity, QuotaKey

if TYPE_CHECKING:
    from logbroker.client.raw.cluster import RawCluster
    from logbroker.client.raw.quotas import DescribedQuotas

DEFAULT_SHOWN: Final = "<default>"
"""The default entity, as Kafka's tools print it."""

_HEADINGS: Final = ("USER", "CLIENT-ID", "IP", "QUOTA", "VALUE")

_HELP: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "Bytes of Produce requests per second.",
    QuotaKey.CONSUMER_BYTE_RATE: "Bytes of Fetch responses per second.",
    QuotaKey.REQUEST_PERCENTAGE: "Time of requests, in percent of one thread.",
    QuotaKey.CONTROLLER_MUTATION_RATE: "Partitions created and deleted per second.",
    QuotaKey.CONNECTION_CREATION_RATE: "Connections that an IP address opens per second.",
}


@click.group()
def quotas() -> None:
    """Set, list and remove the quotas of users, client ids and IP addresses."""


_PARTS: Final = {
    "user": "A user, without `User:`.",
    "client_id": "A client id.",
    "ip": "An IP address.",
}
"""The parts of an entity, in the order of `QuotaEntity`."""


def _entity_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of an entity; the command gets them as `entity`."""

    @wraps(command)
    def with_entity(**arguments: Any) -> None:
        names = [_part(each, arguments) for each in _PARTS]
        if names == [None] * len(_PARTS):
            options = ", ".join(f"{_option(each)}, {_option('default_' + each)}" for each in _PARTS)
            raise click.UsageError(f"whose quotas? give one of {options}")
        command(entity=QuotaEntity(*names), **arguments)

    for name, text in reversed(_PARTS.items()):
        default = click.option(
            _option(f"default_{name}"),
            is_flag=True,
            help="Those without a quota of their own.",
        )
        with_entity = click.option(_option(name), help=text)(default(with_entity))
    return with_entity


def _part(name: str, arguments: dict[str, Any]) -> str | None:
    """Take the two options of a part from the arguments; returns the part."""
    value: str | None = arguments.pop(name)
    is_default: bool = arguments.pop(f"default_{name}")
    if value is not None and is_default:
        raise click.UsageError("a name and its default exclude each other")
    if value == "":
        raise click.UsageError(f"{_option(name)} is empty; allowed: 1 character or more")
    return DEFAULT if is_default else value


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _value_options(command: Callable[..., None]) -> Callable[..., None]:
    for key in reversed(QuotaKey):
        option = click.option(_option(key), key, type=float, metavar="NUMBER", help=_HELP[key])
        command = option(command)
    return command


@quotas.command("set")
@_entity_options
@_value_options
@cluster_options
def set_quotas(entity: QuotaEntity, bootstrap_servers: str, **values: float | None) -> None:
    """Set quotas of a user, a client id, or both, or of an address; the other quotas stay."""
    changes = {key: value for key, value in values.items() if value is not None}
    if not changes:
        raise click.UsageError(f"no quota is given; allowed: {_option_names()}")
    _alter(bootstrap_servers, entity, changes)
    click.echo(f"set {len(changes)} quotas of {_shown(entity)}", err=True)


@quotas.command("list")
@json_option
@cluster_options
def list_quotas(as_json: bool, bootstrap_servers: str) -> None:
    """Print the quotas of every user, client id and address."""
    from logbroker.client.raw.quotas import describe_quotas

    with _cluster(bootstrap_servers) as cluster:
        found = describe_quotas(cluster)
    if as_json:
        echo_json([_json(each) for each in found])
        return
    rows = [
        (*map(_name, entity), key, f"{value:.15g}")
        for entity, values in found
        for key, value in sorted(values.items())
    ]
    for line in table_lines(_HEADINGS, rows):
        click.echo(line)


@quotas.command()
@_entity_options
@click.option(
    "--quota",
    "keys",
    type=click.Choice([each.value for each in QuotaKey]),
    multiple=True,
    help="A quota to remove; repeatable. Default: all.",
)
@cluster_options
def remove(entity: QuotaEntity, keys: tuple[str, ...], bootstrap_servers: str) -> None:
    """Remove quotas of a user, a client id, or both, or of an address, if it has them."""
    _alter(bootstrap_servers, entity, dict.fromkeys(keys or map(str, QuotaKey)))
    click.echo(f"removed the quotas of {_shown(entity)}", err=True)


def _alter(
    bootstrap_servers: str, entity: QuotaEntity, changes: Mapping[str, float | None]
) -> None:
    from logbroker.client.raw.quotas import alter_quotas

    with _cluster(bootstrap_servers) as cluster:
        alter_quotas(cluster, entity, changes)


@contextmanager
def _cluster(bootstrap_servers: str) -> Iterator["RawCluster"]:
    from logbroker.client.raw.cluster import RawCluster

    with one_line_errors(bootstrap_servers):
        properties = {**client_properties(), "bootstrap.servers": bootstrap_servers}
        with RawCluster(properties, timeout_s=REQUEST_TIMEOUT_S) as cluster:
            yield cluster


def _option_names() -> str:
    return ", ".join(map(_option, QuotaKey))


def _name(name: str | None) -> str | None:
    return DEFAULT_SHOWN if name == DEFAULT else name


def _shown(entity: QuotaEntity) -> str:
    parts = zip(("user", "client id", "ip"), map(_name, entity), strict=True)
    return " and ".join(f"{kind} {name}" for kind, name in parts if name is not None)


def _json(described: "DescribedQuotas") -> dict[str, Any]:
    parts = zip(_PARTS, map(_name, described.entity), strict=True)
    return {**dict(parts), "quotas": described.values}
