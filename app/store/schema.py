"""Which schema a database has, and whether it is that of this version."""

from typing import Final

from sqlalchemy import Connection, column, inspect, select, table

from app.store.engine import patient_engine, translated
from app.store.tables import REVISION

_VERSIONS: Final = table("alembic_version", column("version_num"))
"""Where Alembic notes the migration that it applied last."""


def migrate(url: str) -> None:
    """Apply every migration that the database lacks; processes that do so at once take turns.

    A SQLite file and its folder are made when they are missing.

    Raises:
        StoreUnavailable: the database does not answer, or somebody else migrates it for long.
        SchemaUnknown: a later version has migrated it.
    """
    # To load Alembic takes a fifth of the time in which a process starts, and few migrate.
    from app.store.migration import upgrade

    upgrade(url)


def is_migrated(url: str) -> bool:
    """Whether the database has the schema of this version.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    with translated(), patient_engine(url) as engine, engine.connect() as connection:
        return found_revision(connection) == REVISION


def found_revision(connection: Connection) -> str | None:
    """The last migration that was applied; None for an empty database."""
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    found: str | None = connection.scalar(select(_VERSIONS.c.version_num))
    return found
