"""`rewind secrets`: manage the keys that encrypt the secrets of webhooks in the database."""

from contextlib import closing
from pathlib import Path

import click

from app.cli.options import exit_with_error, load_settings, setting_options
from logbroker.lazy_group import imports_without_gc

database_option = setting_options(database="SQLAlchemy URL of the database.")


@click.group()
def secrets() -> None:
    """Manage the keys that encrypt the secrets of webhooks."""


@secrets.command("new-key")
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Create this file with the key, mode 0600, instead of printing the key.",
)
def new_key(file: Path | None) -> None:
    """Make a new key, for REWIND_SECRET_KEY or for a file."""
    with imports_without_gc():
        from app.store import StoreError
        from app.store.secret_keys import create_key_file, new_secret_key

    if file is None:
        click.echo(new_secret_key())
        return
    try:
        create_key_file(file)
    except FileExistsError:
        exit_with_error(f"{file} exists; it is not changed")
    except StoreError as error:
        exit_with_error(str(error))
    click.echo(f"created {file}; keep a copy in another place", err=True)


@secrets.command()
@database_option
def status(**overrides: str | None) -> None:
    """Show how many secrets are encrypted with which key.

    Each line has the key's id, its use and the number of secrets. A key without secrets is not
    needed any more.
    """
    with imports_without_gc():
        from app.store import Store, StoreError
        from app.store.secret_keys import load_secret_keys
        from app.store.secret_rotation import TEXT

    settings = load_settings(**overrides)
    try:
        known = load_secret_keys(settings).ids
        with closing(Store.open(settings.database)) as store:
            counts = store.count_secrets_by_key()
    except StoreError as error:
        exit_with_error(str(error))
    uses = {name: "encrypts" if name == known[0] else "decrypts" for name in known}
    uses |= {name: "missing" for name in counts if name not in (TEXT, *known)}
    for name, use in uses.items():
        click.echo(f"{name}  {use}  {counts.get(name, 0)}")
    if counts.get(TEXT):
        click.echo(f"-         text      {counts[TEXT]}")


@secrets.command()
@database_option
def reencrypt(**overrides: str | None) -> None:
    """Encrypt all secrets with the first key. Running it again has no effect.

    Processes may run meanwhile if all of them have the first key and the previous ones.
    """
    with imports_without_gc():
        from app.store import Store, StoreError

    try:
        with closing(Store.of(load_settings(**overrides))) as store:
            store.check()
            changed = store.reencrypt_secrets()
    except StoreError as error:
        exit_with_error(str(error))
    click.echo(f"encrypted the secrets of {changed} webhooks and notice endpoints", err=True)
