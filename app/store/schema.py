"""The version of the database's schema, and its migration by Alembic."""

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import URL, Connection, Engine, column, inspect, make_url, select, table, text

from app.store.engine import BUSY_S, migration_engine, translated_errors
from app.store.errors import SchemaUnknown, StoreUnavailable
from app.store.tables import REVISION

if TYPE_CHECKING:
    from alembic.config import Config

_VERSIONS: Final = table("alembic_version", column("version_num"))
"""The table in which Alembic stores the last migration that it applied."""

LOCK_NAME: Final = "rewind_migrate"

LOCK_WAIT_S: Final = 300
"""How long a process waits for the migrations of another process."""

_WAL_RETRY_S: Final = 0.01

# Alembic keeps the context of a migration in globals.
_ONE_THREAD: Final = threading.Lock()


def migrate(url: str) -> None:
    """Apply all missing migrations. Processes that migrate at the same time wait for each other.

    Creates a SQLite file and its folder if they are missing.

    Raises:
        StoreUnavailable: the database does not answer, or another process migrates for too long.
        SchemaUnknown: a later version has migrated the database.
    """
    if _exists(url) and is_migrated(url):
        return
    # Loading Alembic takes a fifth of a process's start-up time, and few processes migrate.
    from alembic import command

    with _ONE_THREAD:
        command.upgrade(alembic_config(url), "head")


def alembic_config(url: str) -> "Config":
    """The configuration with which Alembic migrates the database."""
    from alembic.config import Config

    config = Config()
    # A percent sign in a path would start an interpolation.
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["url"] = url
    return config


def is_migrated(url: str) -> bool:
    """Whether the database has the schema of this version.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    with translated_errors(), migration_engine(url) as engine, engine.connect() as connection:
        return applied_revision(connection) == REVISION


def applied_revision(connection: Connection) -> str | None:
    """The last migration that was applied; None for an empty database."""
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    found: str | None = connection.scalar(select(_VERSIONS.c.version_num))
    return found


@contextmanager
def migrating(url: str, known: Iterable[str]) -> Iterator[Connection]:
    """A connection in a transaction that excludes other migrations; `migrations.env` uses it.

    On SQLite the transaction applies all migrations or none. MySQL commits at every DDL statement,
    so there a named lock excludes other processes. `known` are the revisions of this version.

    Raises:
        StoreUnavailable: the database does not answer, or another process migrates for too long.
        SchemaUnknown: the database has a revision that is not `known`.
    """
    _create_folder(make_url(url))
    with translated_errors(), migration_engine(url) as engine:
        if engine.dialect.name == "sqlite":
            _enable_wal(engine)
        with engine.execution_options(rewind_writes=True).begin() as connection:
            _lock_migrations(connection)
            found = applied_revision(connection)
            if found is not None and found not in known:
                raise SchemaUnknown(found, REVISION)
            yield connection


def _exists(url: str) -> bool:
    """Whether a SQLite file has content; always True for a server.

    An empty file may be one that another process just created to migrate it. Reading it would
    block that process when it switches the file to write-ahead logging.
    """
    place = make_url(url)
    if place.get_backend_name() != "sqlite":
        return True
    file = Path(place.database or "")
    return file.is_file() and file.stat().st_size > 0


def _create_folder(url: URL) -> None:
    if url.get_backend_name() == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)


def _enable_wal(engine: Engine) -> None:
    """Let readers of a SQLite file work during a write; the file stores the mode."""
    end_s = time.monotonic() + BUSY_S
    while True:
        try:
            with closing(engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            # While another process writes or switches, SQLite does not wait for it.
            if time.monotonic() >= end_s:
                raise
            time.sleep(_WAL_RETRY_S)
        else:
            return


def _lock_migrations(connection: Connection) -> None:
    """Hold the lock until the connection closes; on SQLite the write transaction is the lock."""
    if connection.dialect.name == "sqlite":
        return
    query = text("SELECT GET_LOCK(:name, :wait_s)")
    if connection.scalar(query, {"name": LOCK_NAME, "wait_s": LOCK_WAIT_S}) != 1:
        raise StoreUnavailable(f"another process has been migrating for more than {LOCK_WAIT_S} s")
