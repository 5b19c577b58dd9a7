"""`rewind keys`: who may ask the API; on the database itself, since it takes a key to ask."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from app.cli.audit import note_key
from app.cli.options import load_settings, printable, refuse, setting_options
from app.domain.accounts import ACCOUNT_NAME, ApiKey, Scope
from app.domain.windows import format_time
from logbroker.lazy_group import imports_without_gc

if TYPE_CHECKING:
    from app.store import Store

database_option = setting_options(database="SQLAlchemy URL of the database.")


@click.group()
def keys() -> None:
    """Create, list and revoke API keys."""
    from logging.config import dictConfig

    from app.json_log import CONFIG

    # The audit's lines are JSON, as those of the servers are.
    dictConfig(CONFIG)


def _checked_account(_: click.Context, __: click.Parameter, name: str) -> str:
    if not re.fullmatch(ACCOUNT_NAME, name):
        raise click.BadParameter(
            f"{name!r} is no name; allowed are up to 64 letters, digits and . _ @ -"
        )
    return name


@keys.command()
@click.option(
    "--account",
    required=True,
    callback=_checked_account,
    help="Whose key it is; an account of a new name is made.",
)
@click.option(
    "--scope",
    type=click.Choice([str(scope) for scope in Scope]),
    default=str(Scope.DEVELOPER),
    show_default=True,
    help="What it opens: the account's own things, or everything.",
)
@click.option("--read-only", is_flag=True, help="It may look at all that, and change nothing.")
@click.option("--description", default="", help="What it is for.")
@database_option
def create(
    account: str, scope: str, read_only: bool, description: str, **overrides: str | None
) -> None:
    """Make a key, and print its text, which is shown this once and kept nowhere."""
    with _store(overrides) as store:
        key, token = store.create_key(account, Scope(scope), description, is_read_only=read_only)
    note_key("createKey", key)
    click.echo(f"key {key.id} of account {key.account.name} ({key.account.id}):", err=True)
    click.echo(token)


@keys.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object a line.")
@database_option
def list_keys(as_json: bool, **overrides: str | None) -> None:
    """Print every key but its text, the oldest first, also those that were revoked."""
    with _store(overrides) as store:
        found = store.keys()
    for key in found:
        click.echo(_json_line(key) if as_json else _line(key))


@keys.command()
@click.argument("key_id")
@database_option
def revoke(key_id: str, **overrides: str | None) -> None:
    """Let the key KEY_ID open nothing any more; revoking it again changes nothing."""
    with _store(overrides) as store:
        key = store.revoke_key(key_id)
    note_key("revokeKey", key)
    click.echo(f"key {key.id} of account {key.account.name} opens nothing any more", err=True)


@contextmanager
def _store(overrides: dict[str, str | None]) -> "Iterator[Store]":
    """The store of the settings; what it refuses ends the process."""
    with imports_without_gc():
        from app.store import Store, StoreError

    store = Store.open(load_settings(**overrides).database)
    try:
        store.check()
        yield store
    except StoreError as error:
        refuse(str(error))
    finally:
        store.close()


def _line(key: ApiKey) -> str:
    state = "good" if key.revoked_ms is None else f"revoked {format_time(key.revoked_ms)}"
    made = format_time(key.created_ms)
    scope = f"{key.scope}, read-only" if key.is_read_only else str(key.scope)
    columns = (key.id, key.account.name, scope, made, state, key.description)
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
