"""What commands that access the database directly share: they need no API key."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from app.cli.options import exit_with_error, load_settings, setting_options
from app.domain.accounts import ACCOUNT_NAME, Account
from logbroker.lazy_group import imports_without_gc

if TYPE_CHECKING:
    from app.store import Store

database_option = setting_options(database="SQLAlchemy URL of the database.")


def check_account_name(_: click.Context, __: click.Parameter, name: str) -> str:
    """Return a valid name of an account.

    Raises:
        BadParameter: it has other characters, or too many.
    """
    if not re.fullmatch(ACCOUNT_NAME, name):
        raise click.BadParameter(
            f"invalid account name {name!r}; allowed: up to 64 letters, digits and . _ @ -"
        )
    return name


account_option = click.option(
    "--account", required=True, callback=check_account_name, help="Name of the account."
)


@contextmanager
def open_store(overrides: dict[str, str | None]) -> "Iterator[Store]":
    """Yield the store of the settings, for commands that do not use the secrets of webhooks.

    Ends the process on an error.
    """
    with imports_without_gc():
        from app.store import Store, StoreError

    store = Store.open(load_settings(**overrides).database)
    try:
        store.check_schema()
        yield store
    except StoreError as error:
        exit_with_error(str(error))
    finally:
        store.close()


def find_account(store: "Store", name: str) -> Account:
    """The account with this name. Ends the process if no account has it."""
    from app.store import AccountNotFound

    try:
        return store.account_named(name)
    except AccountNotFound as error:
        exit_with_error(
            f"{error}; `rewind accounts create {name}` creates it, `rewind accounts list` lists all"
        )
