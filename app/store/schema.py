"""Brings a database to the schema of this version, and tells whether it is there."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, make_url, text

from app.store.engine import open_engine, translated
from app.store.errors import SchemaUnknown, StoreUnavailable

LOCK_NAME: Final = "rewind_migrate"

LOCK_WAIT_S: Final = 300
"""How long one process waits for the migrations of another."""

# Alembic keeps the context of a migration in globals.
_ONE_THREAD: Final = threading.Lock()


def migrate(url: str) -> None:
    """Apply every migration that the database lacks; processes that do so at once take turns.

    A SQLite file and its folder are made when they are missing.

    Raises:
        StoreUnavailable: the database does not answer, or somebody else migrates it for long.
        SchemaUnknown: a later version has migrated it.
    """
    config = _config()
    config.attributes["url"] = url
    with _ONE_THREAD:
        command.upgrade(config, "head")


def is_migrated(url: str) -> bool:
    """Whether the database has the schema of this version.

    Raises:
        StoreUnavailable: the database does not answer.
    """
    with translated(), _engine(url) as engine, engine.connect() as connection:
        return found_revision(connection) == needed_revision()


def found_revision(connection: Connection) -> str | None:
    """The last migration that was applied; None for an empty database."""
    return MigrationContext.configure(connection).get_current_revision()


@cache
def needed_revision() -> str:
    """The last migration of this version."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


@contextmanager
def migrating(url: str) -> Iterator[Connection]:
    """A connection in a transaction that nobody else migrates beside; `migrations.env` runs in it.

    On SQLite a migration is applied as a whole or not at all. MySQL commits at every change of
    a table, so there a named lock keeps others out.
    """
    _make_folder(make_url(url))
    with translated(), _engine(url) as engine:
        if engine.dialect.name == "sqlite":
            _use_wal(engine)
        with engine.execution_options(rewind_writes=True).begin() as connection:
            _take_turn(connection)
            _check_known(connection)
            yield connection


@contextmanager
def _engine(url: str) -> Iterator[Engine]:
    # Changing a large table may take minutes.
    engine = open_engine(url, answer_s=None)
    try:
        yield engine
    finally:
        engine.dispose()


def _make_folder(url: URL) -> None:
    if url.get_backend_name() == "sqlite" and url.database:
        Path(url.database).parent.mkdir(parents=True, exist_ok=True)


def _use_wal(engine: Engine) -> None:
    """Let readers of a SQLite file go on beside a writer; the file remembers it."""
    with closing(engine.raw_connection()) as connection:
        connection.cursor().execute("PRAGMA journal_mode = WAL")


def _take_turn(connection: Connection) -> None:
    """Hold the lock of migrations until the connection closes; on SQLite its writer holds it."""
    if connection.dialect.name == "sqlite":
        return
    query = text("SELECT GET_LOCK(:name, :wait_s)")
    if connection.scalar(query, {"name": LOCK_NAME, "wait_s": LOCK_WAIT_S}) != 1:
        raise StoreUnavailable(f"another process migrates for more than {LOCK_WAIT_S} s")


def _check_known(connection: Connection) -> None:
    found = found_revision(connection)
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if found is not None and found not in known:
        raise SchemaUnknown(found, needed_revision())


def _config() -> Config:
    config = Config()
    # A percent sign in a path would ask for interpolation.
    folder = str(files("migrations")).replace("%", "%%")
    config.set_main_option("script_location", folder)
    config.set_main_option("path_separator", "os")
    return config
