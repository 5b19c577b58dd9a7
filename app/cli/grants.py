"""`rewind grants`: manage an account's grants directly in the database, which needs no API key."""

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from app.audit_log import record_change
from app.cli.database import account_option, database_option, find_account, open_store
from app.cli.options import printable
from app.domain.grants import Grant
from app.domain.rules import document_of

if TYPE_CHECKING:
    from app.store import Store


@click.group()
def grants() -> None:
    """Create, list and delete the grants of an account."""
    from logbroker.json_log import configure_logging

    # Audit log lines are JSON, as in the servers.
    configure_logging()


@grants.command()
@click.argument("name")
@account_option
@click.option(
    "--event-type",
    "event_types",
    multiple=True,
    required=True,
    metavar="GLOB",
    help="Event types that it covers: * is any characters, ? one. Repeat it for several.",
)
@click.option(
    "--where",
    multiple=True,
    metavar="PATH=VALUE",
    help='A value that events must have, as JSON or text: data.userId=42 is a number, data.userId="'
    '42" a text. A JSON list is a pattern: alternatives and operators. Repeat it for several.',
)
@database_option
def put(
    name: str,
    account: str,
    event_types: Sequence[str],
    where: Sequence[str],
    **overrides: str | None,
) -> None:
    """Create or replace the grant NAME of an account. It takes effect within a second."""
    with open_store(overrides) as store:
        account_id = find_account(store, account).id
        grant = _checked(account_id, name, event_types, dict(map(_condition, where)))
        store.put_grant(grant)
    record_change("putGrant", f"{account_id}/{name}", account_id=account_id, uid=os.getuid())
    click.echo(f"account {account} has the grant {name}", err=True)


def _condition(text: str) -> tuple[str, Any]:
    path, separator, value = text.partition("=")
    if not separator:
        raise click.UsageError(f"invalid --where {text!r}; allowed: PATH=VALUE")
    try:
        return path, json.loads(value)
    except ValueError:
        return path, value


def _checked(
    account_id: str, name: str, event_types: Sequence[str], where: dict[str, Any]
) -> Grant:
    """The grant, within the limits of the API. Ends the process if it exceeds one."""
    from pydantic import ValidationError

    from app.http.event_selections import GrantRequest, check_grant_name
    from app.http.problems import field_errors
    from app.services.errors import InvalidRequest, join_sentences

    try:
        check_grant_name(name)
        request = GrantRequest.model_validate({"eventTypes": list(event_types), "where": where})
    except InvalidRequest as error:
        raise click.UsageError(error.detail) from None
    except ValidationError as error:
        raise click.UsageError(join_sentences(field_errors(error.errors()))) from None
    return request.grant(account_id, name)


@grants.command("list")
@account_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@database_option
def list_grants(account: str, as_json: bool, **overrides: str | None) -> None:
    """List the grants of an account, by name."""
    with open_store(overrides) as store:
        for grant in _all_grants(store, find_account(store, account).id):
            where = document_of(grant.where)
            document = {"name": grant.name, "eventTypes": grant.event_types, "where": where}
            conditions = (f"{path}={json.dumps(value)}" for path, value in where.items())
            line = "  ".join((grant.name, " ".join(grant.event_types), *conditions))
            click.echo(json.dumps(document) if as_json else printable(line))


def _all_grants(store: "Store", account_id: str) -> Iterator[Grant]:
    cursor = None
    while True:
        page = store.grants(account_id, cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


@grants.command()
@click.argument("name")
@account_option
@database_option
def delete(name: str, account: str, **overrides: str | None) -> None:
    """Delete the grant NAME of an account. Events that it has covered are still delivered."""
    with open_store(overrides) as store:
        account_id = find_account(store, account).id
        store.delete_grant(account_id, name)
    record_change("deleteGrant", f"{account_id}/{name}", account_id=account_id, uid=os.getuid())
    click.echo(f"account {account} no longer has the grant {name}", err=True)
