"""Brings a database to the schema of this version, by Alembic; loaded when it is to be done."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, make_url, text

from app.store.engine import patient_engine, translated
from app.store.errors import SchemaUnknown, StoreUnavailable
from app.store.schema import found_revision
from app.store.tables import REVISION

LOCK_NAME: Final = "rewind_migrate"

LOCK_WAIT_S: Final = 300
"""How long one process waits for the migrations of another."""

# Alembic keeps the context of a migration in globals.
_ONE_THREAD: Final = threading.Lock()


def upgrade(url: str) -> None:
    """Apply every migration that the database lacks: see `schema.migrate`."""
    config = _config()
    config.attributes["url"] = url
    with _ONE_THREAD:
        command.upgrade(config, "head")


@contextmanager
def migrating(url: str) -> Iterator[Connection]:
    """A connection in a transaction that nobody else migrates beside; `migrations.env` runs in it.

    On SQLite a migration is applied as a whole or not at all. MySQL commits at every change of
    a table, so there a named lock keeps others out.
    """
    _make_folder(make_url(url))
    with translated(), patient_engine(url) as engine:
        if engine.dialect.name == "sqlite":
            _use_wal(engine)
        with engine.execution_options(rewind_writes=True).begin() as connection:
            _take_turn(connection)
            _check_known(connection)
            yield connection


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
        raise SchemaUnknown(found, REVISION)


def _config() -> Config:
    config = Config()
    # A percent sign in a path would ask for interpolation.
    folder = str(files("migrations")).replace("%", "%%")
    config.set_main_option("script_location", folder)
    config.set_main_option("path_separator", "os")
    return config
