"""`logbroker acls`: list, add and remove access control lists of a running cluster."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import click
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from logbroker.cli.admin_command import (
    REQUEST_TIMEOUT_S,
    admin_client,
    cluster_options,
    echo_json,
    json_option,
    one_line_errors,
)
from logbroker.cli.formats import table_lines

CLUSTER_NAME: Final = "kafka-cluster"
EVERY_HOST: Final = "*"

_HEADINGS: Final = (
    "PRINCIPAL",
    "HOST",
    "PERMISSION",
    "OPERATION",
    "RESOURCE",
    "PATTERN",
    "NAME",
)

_OPERATIONS: Final = {
    each.name.lower().replace("_", "-"): each
    for each in AclOperation
    if each not in (AclOperation.UNKNOWN, AclOperation.ANY)
}
# librdkafka's name of the cluster is that of the resource type of settings.
_TYPES: Final = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    ResourceType.BROKER: "cluster",
    ResourceType.TRANSACTIONAL_ID: "transactional-id",
}

_Resource = tuple[ResourceType, str]


@click.group()
def acls() -> None:
    """List, add and remove access control lists of a running cluster."""


def _resource_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option("--topic", "topics", multiple=True, help="A topic; repeatable."),
        click.option("--group", "groups", multiple=True, help="A consumer group; repeatable."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option(
            "--transactional-id", "transactional_ids", multiple=True, help="An id; repeatable."
        ),
        click.option("--prefixed", is_flag=True, help="The names are prefixes."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def _entry_options(command: Callable[..., None]) -> Callable[..., None]:
    options = (
        click.option(
            "--principal",
            required=True,
            metavar="User:NAME",
            help="Whom it applies to; User:* means every user.",
        ),
        click.option(
            "--operation",
            "operations",
            multiple=True,
            required=True,
            type=click.Choice(list(_OPERATIONS), case_sensitive=False),
            help="What is allowed or denied; repeatable.",
        ),
        click.option("--host", default=EVERY_HOST, show_default=True, help="Address of clients."),
        click.option("--deny", is_flag=True, help="Deny instead of allow."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@acls.command()
@_entry_options
@_resource_options
@cluster_options
def add(bootstrap_servers: str, **fields: Any) -> None:
    """Add an ACL for each operation and each resource; existing ones are no error."""
    wanted = _bindings(**fields)
    with one_line_errors(bootstrap_servers):
        admin = admin_client(bootstrap_servers)
        for result in admin.create_acls(wanted, request_timeout=REQUEST_TIMEOUT_S).values():
            result.result()
    click.echo(f"added {_count(len(wanted))}", err=True)


@acls.command()
@_entry_options
@_resource_options
@cluster_options
def remove(bootstrap_servers: str, **fields: Any) -> None:
    """Remove the ACL of each operation and each resource; missing ones are no error."""
    filters = [
        AclBindingFilter(
            each.restype,
            each.name,
            each.resource_pattern_type,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )
        for each in _bindings(**fields)
    ]
    with one_line_errors(bootstrap_servers):
        admin = admin_client(bootstrap_servers)
        results = admin.delete_acls(filters, request_timeout=REQUEST_TIMEOUT_S).values()
        removed = sum(len(result.result()) for result in results)
    click.echo(f"removed {_count(removed)}", err=True)


@acls.command("list")
@click.option("--principal", metavar="User:NAME", help="Only those of this principal.")
@click.option("--topic", help="Only those that apply to this topic, also by `*` or a prefix.")
@click.option("--group", help="Only those that apply to this group, also by `*` or a prefix.")
@json_option
@cluster_options
def list_(
    principal: str | None,
    topic: str | None,
    group: str | None,
    bootstrap_servers: str,
    as_json: bool,
) -> None:
    """Print all ACLs, or those that apply to a topic, a group or a principal."""
    if topic is not None and group is not None:
        raise click.UsageError("--topic and --group are mutually exclusive")
    kind = ResourceType.ANY
    if topic is not None or group is not None:
        kind = ResourceType.GROUP if topic is None else ResourceType.TOPIC
    # The type hints of the client omit None, which matches everything.
    every: Any = None
    wanted = AclBindingFilter(
        kind,
        topic or group or every,
        ResourcePatternType.ANY if kind is ResourceType.ANY else ResourcePatternType.MATCH,
        principal or every,
        every,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    with one_line_errors(bootstrap_servers):
        admin = admin_client(bootstrap_servers)
        found = admin.describe_acls(wanted, request_timeout=REQUEST_TIMEOUT_S).result()
    rows = sorted(_row(each) for each in found)
    if as_json:
        echo_json([dict(zip(_keys(), row, strict=True)) for row in rows])
        return
    if not rows:
        # confluent-kafka returns an empty list for an error response, too.
        click.echo(
            "no ACLs; a broker without --authorizer has none, and they are shown only with the "
            "permission to describe the cluster",
            err=True,
        )
        return
    for line in table_lines(_HEADINGS, rows):
        click.echo(line)


def _bindings(
    principal: str,
    operations: Sequence[str],
    host: str,
    deny: bool,
    **resources: Any,
) -> list[AclBinding]:
    pattern = ResourcePatternType.PREFIXED if resources["prefixed"] else ResourcePatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return [
        AclBinding(
            kind,
            name,
            # The cluster has one name, which is no prefix.
            ResourcePatternType.LITERAL if kind is ResourceType.BROKER else pattern,
            principal,
            host,
            _OPERATIONS[operation],
            permission,
        )
        for kind, name in _resources(resources)
        for operation in operations
    ]


def _resources(options: dict[str, Any]) -> list[_Resource]:
    found: list[_Resource] = []
    found += [(ResourceType.TOPIC, name) for name in options["topics"]]
    found += [(ResourceType.GROUP, name) for name in options["groups"]]
    found += [(ResourceType.TRANSACTIONAL_ID, name) for name in options["transactional_ids"]]
    if options["cluster"]:
        found.append((ResourceType.BROKER, CLUSTER_NAME))
    if not found:
        raise click.UsageError(
            "no resource; name one with --topic, --group, --cluster or --transactional-id"
        )
    return found


def _row(acl: Any) -> tuple[str, ...]:
    return (
        acl.principal,
        acl.host,
        acl.permission_type.name.lower(),
        acl.operation.name.lower().replace("_", "-"),
        _TYPES.get(acl.restype, acl.restype.name.lower()),
        acl.resource_pattern_type.name.lower(),
        acl.name,
    )


def _keys() -> list[str]:
    return [heading.lower() for heading in _HEADINGS]


def _count(number: int) -> str:
    return f"{number} ACL{'' if number == 1 else 's'}"
