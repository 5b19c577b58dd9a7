"""`rewind accounts`: manage accounts directly in the database, which needs no API key."""

import json
import os

import click

from app.audit_log import record_change
from app.cli.database import check_account_name, database_option, open_store
from app.domain.windows import format_time


@click.group()
def accounts() -> None:
    """Create and list accounts."""
    from logbroker.json_log import configure_logging

    # Audit log lines are JSON, as in the servers.
    configure_logging()


@accounts.command()
@click.argument("name", callback=check_account_name)
@database_option
def create(name: str, **overrides: str | None) -> None:
    """Create the account NAME and print its id.

    Without a grant, its webhooks receive only events that name the account or the webhook.
    """
    with open_store(overrides) as store:
        account = store.create_account(name)
    record_change("createAccount", account.id, account_id=account.id, uid=os.getuid())
    click.echo(f"account {account.name} has no grants; see `rewind grants put`", err=True)
    click.echo(account.id)


@accounts.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@database_option
def list_accounts(as_json: bool, **overrides: str | None) -> None:
    """List all accounts, oldest first."""
    with open_store(overrides) as store:
        found = store.accounts()
    for account in found:
        created = format_time(account.created_ms)
        document = {"id": account.id, "account": account.name, "createdAt": created}
        click.echo(json.dumps(document) if as_json else "  ".join(document.values()))
