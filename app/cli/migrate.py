"""`rewind migrate`: bring the database to the schema of this version."""

import click

from app.cli.options import load_settings, refuse, setting_options
from logbroker.lazy_group import imports_without_gc


@click.command()
@setting_options(database="SQLAlchemy URL of the database.")
def migrate(**overrides: str | None) -> None:
    """Create or upgrade the tables; running it twice does nothing more."""
    with imports_without_gc():
        from app.store import StoreError
        from app.store import migrate as migrate_database

    settings = load_settings(**overrides)
    try:
        migrate_database(settings.database)
    except StoreError as error:
        refuse(str(error))
    click.echo("the database is up to date", err=True)
