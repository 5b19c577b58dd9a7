"""Which schema a database has, and whether it is that of this version."""

from pathlib import Path
from typing import Final

from sqlalchemy import Connection, column, inspect, make_url, select, table

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
    if _exists(url) and is_migrated(url):
        return
    # To load Alembic takes a fifth of the time in which a process starts, and few migrate.
    from app.store.migration import upgrade

    upgrade(url)


def _exists(url: str) -> bool:
    """Whether a SQLite file has content; of a server only its answer can say.

    An empty file may be one that another process just made to migrate it: a reader would stand in
    the way when that process switches the file to write-ahead logging.
    """
    place = make_url(url)
    if place.get_backend_name() != "sqlite":
        return True
    file = Path(place.database or "")
    return file.is_file() and file.stat().st_size > 0


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
