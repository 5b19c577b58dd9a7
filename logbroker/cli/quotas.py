"""`logbroker quotas`: set, list and remove the quotas of users and client ids."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
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

_HEADINGS: Final = ("USER", "CLIENT-ID", "QUOTA", "VALUE")

_HELP: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "Bytes of Produce requests per second.",
    QuotaKey.CONSUMER_BYTE_RATE: "Bytes of Fetch responses per second.",
    QuotaKey.REQUEST_PERCENTAGE: "Time of requests, in percent of one thread.",
    QuotaKey.CONTROLLER_MUTATION_RATE: "Partitions created and deleted per second.",
}


@click.group()
def quotas() -> None:
    """Set, list and remove the quotas of users and client ids of a running cluster."""


def _entity_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("--user", help="A user, without `User:`."),
        click.option("--default-user", is_flag=True, help="Users without a quota of their own."),
        click.option("--client-id", help="A client id."),
        click.option(
            "--default-client-id", is_flag=True, help="Client ids without a quota of their own."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _value_options(command: Callable[..., None]) -> Callable[..., None]:
    for key in reversed(QuotaKey):
        name = "--" + key.replace("_", "-")
        command = click.option(name, key, type=float, metavar="NUMBER", help=_HELP[key])(command)
    return command


@quotas.command("set")
@_entity_options
@_value_options
@cluster_options
def set_quotas(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    bootstrap_servers: str,
    **values: float | None,
) -> None:
    """Set quotas of a user, a client id, or both; the other quotas stay."""
    entity = _entity(user, client_id, default_user=default_user, default_client=default_client_id)
    changes = {key: value for key, value in values.items() if value is not None}
    if not changes:
        raise click.UsageError(f"no quota is given; allowed: {_option_names()}")
    _alter(bootstrap_servers, entity, changes)
    click.echo(f"set {len(changes)} quotas of {_shown(entity)}", err=True)


@quotas.command("list")
@json_option
@cluster_options
def list_quotas(as_json: bool, bootstrap_servers: str) -> None:
    """Print the quotas of every user and client id."""
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
def remove(
    user: str | None,
    default_user: bool,
    client_id: str | None,
    default_client_id: bool,
    keys: tuple[str, ...],
    bootstrap_servers: str,
) -> None:
    """Remove quotas of a user, a client id, or both; missing ones are no error."""
    entity = _entity(user, client_id, default_user=default_user, default_client=default_client_id)
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


def _entity(
    user: str | None, client_id: str | None, *, default_user: bool, default_client: bool
) -> QuotaEntity:
    if (user is not None and default_user) or (client_id is not None and default_client):
        raise click.UsageError("a name and its default exclude each other")
    if "" in (user, client_id):
        raise click.UsageError("a user or client id is empty; allowed: 1 character or more")
    entity = QuotaEntity(
        DEFAULT if default_user else user, DEFAULT if default_client else client_id
    )
    if entity == QuotaEntity(None, None):
        raise click.UsageError(
            "whose quotas? give --user, --default-user, --client-id or --default-client-id"
        )
    return entity


def _option_names() -> str:
    return ", ".join("--" + key.replace("_", "-") for key in QuotaKey)


def _name(name: str | None) -> str | None:
    return DEFAULT_SHOWN if name == DEFAULT else name


def _shown(entity: QuotaEntity) -> str:
    parts = zip(("user", "client id"), map(_name, entity), strict=True)
    return " and ".join(f"{kind} {name}" for kind, name in parts if name is not None)


def _json(described: "DescribedQuotas") -> dict[str, Any]:
    user, client_id = map(_name, described.entity)
    return {"user": user, "client_id": client_id, "quotas": described.values}
