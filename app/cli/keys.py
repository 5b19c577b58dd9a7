"""`rewind keys`: manage API keys directly in the database, which needs no API key."""

import json
from typing import Any

import click

from app.cli.database import account_option, database_option, find_account, open_store
from app.cli.operator_key import log_key_change
from app.cli.options import printable
from app.domain.accounts import ApiKey, Scope
from app.domain.windows import format_time


@click.group()
def keys() -> None:
    """Create, list and revoke API keys."""
    from logbroker.json_log import configure_logging

    # Audit log lines are JSON, as in the servers.
    configure_logging()


@keys.command()
@account_option
@click.option(
    "--scope",
    type=click.Choice([str(scope) for scope in Scope]),
    default=str(Scope.DEVELOPER),
    show_default=True,
    help="Access to the account's own resources, or to everything.",
)
@click.option("--read-only", is_flag=True, help="The key can read, but not change anything.")
@click.option("--description", default="", help="Purpose of the key.")
@database_option
def create(
    account: str, scope: str, read_only: bool, description: str, **overrides: str | None
) -> None:
    """Create a key and print it. It is stored as a digest only, so it cannot be shown again.

    The account must exist: see `rewind accounts create`.
    """
    with open_store(overrides) as store:
        find_account(store, account)
        key, token = store.create_key(account, Scope(scope), description, is_read_only=read_only)
    log_key_change("createKey", key)
    click.echo(f"key {key.id} of account {key.account.name} ({key.account.id}):", err=True)
    click.echo(token)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@database_option
def list_keys(as_json: bool, **overrides: str | None) -> None:
    """List all keys, including revoked ones, oldest first. Keys themselves are not shown."""
    with open_store(overrides) as store:
        found = store.keys()
    for key in found:
        click.echo(_json_line(key) if as_json else _line(key))


@keys.command()
@click.argument("key_id")
@database_option
def revoke(key_id: str, **overrides: str | None) -> None:
    """Revoke KEY_ID. Revoking it again has no effect."""
    with open_store(overrides) as store:
        key = store.revoke_key(key_id)
    log_key_change("revokeKey", key)
    click.echo(f"revoked key {key.id} of account {key.account.name}", err=True)


def _line(key: ApiKey) -> str:
    state = "valid" if key.revoked_ms is None else f"revoked {format_time(key.revoked_ms)}"
    created = format_time(key.created_ms)
    scope = f"{key.scope}, read-only" if key.is_read_only else str(key.scope)
    columns = (key.id, key.account.name, scope, created, state, key.description)
    return printable("  ".join(columns).rstrip())


def _json_line(key: ApiKey) -> str:
    document: dict[str, Any] = {
        "id": key.id,
        "accountId": key.account.id,
        "account": key.account.name,
        "scope": key.scope,
        "readOnly": key.is_read_only,
        "description": key.description,
        "createdAt": format_time(key.created_ms),
        "revokedAt": None if key.revoked_ms is None else format_time(key.revoked_ms),
    }
    return json.dumps(document)
