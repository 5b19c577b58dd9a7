"""The data version of a SQLite database: a cheap way to see whether anything was committed."""

import sqlite3
import threading
from contextlib import suppress

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError


class DataVersion:
    """Reads the version on a connection of its own, which never writes. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def read(self) -> int | None:
        """Return a number that is equal only if nothing was committed in between.

        It takes some microseconds, so an event loop may call it. None if the database has no such
        number (MySQL, MariaDB) or does not answer: then anything may have been committed.
        """
        if self._engine.dialect.name != "sqlite":
            return None
        with self._lock, suppress(sqlite3.Error, SQLAlchemyError):
            try:
                connection = self._connection or self._connect()
                found: int = connection.execute("PRAGMA data_version").fetchone()[0]
            except BaseException:
                self._disconnect()
                raise
            else:
                return found
        return None

    def close(self) -> None:
        """Close the connection; the next `read` opens another one."""
        with self._lock:
            self._disconnect()

    def _connect(self) -> sqlite3.Connection:
        pooled = self._engine.raw_connection()
        pooled.detach()
        connection = pooled.dbapi_connection
        assert isinstance(connection, sqlite3.Connection)
        # Nothing waits for a lock here: without an answer, the caller queries the tables.
        connection.execute("PRAGMA busy_timeout = 0")
        self._connection = connection
        return connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
