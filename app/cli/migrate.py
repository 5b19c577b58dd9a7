"""`rewind migrate`: upgrade the database to the schema of this version."""

import click

from app.cli.options import exit_with_error, load_settings, setting_options
from logbroker.lazy_group import imports_without_gc


@click.command()
@setting_options(database="SQLAlchemy URL of the database.")
def migrate(**overrides: str | None) -> None:
    """Create or upgrade the database tables. Running it again has no effect.

    Secrets of webhooks that a previous version stored as text are encrypted.
    """
    with imports_without_gc():
        from app.store import StoreError
        from app.store import migrate as migrate_database
        from app.store.stored_secrets import encrypt_text_secrets
        from logbroker.json_log import configure_logging

    # Migrations log what they change for the operator.
    configure_logging()
    settings = load_settings(**overrides)
    try:
        migrate_database(settings.database)
        encrypted = encrypt_text_secrets(settings)
    except StoreError as error:
        exit_with_error(str(error))
    if encrypted:
        click.echo(f"encrypted the secrets of {encrypted} webhooks", err=True)
    click.echo("the database is up to date", err=True)
