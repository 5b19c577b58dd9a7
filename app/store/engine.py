"""The database: connection pool, transactions, retries, and translation of driver errors."""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import (
    DatabaseError,
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeout

from app.store.data_version import DataVersion
from app.store.errors import StoreUnavailable
from app.store.secret_keys import NO_KEYS, SecretKeys, option_of

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS_MAX: Final = 10
"""Attempts of a transaction that loses to a concurrent one."""

PAUSE_S: Final = 0.01

BUSY_S: Final = 10
"""How long a writer of SQLite waits for another writer; also the timeout to connect."""

LOCK_WAIT_S: Final = 3
"""How long a statement of MySQL waits for a row lock before its transaction is retried."""

DEADLOCK: Final = 1213
LOCK_WAIT_TIMEOUT: Final = 1205

ANSWER_S: Final = 20
"""How long MySQL may take to answer: a lost network must not block a worker past its lease."""

IDLE_S: Final = 60
"""How long a client of MySQL may be idle before the server closes its connection. This releases
the locks of a process that froze in a transaction. The pool replaces closed connections."""

_WRITES: Final = "rewind_writes"


def open_engine(url: str, answer_s: int | None = ANSWER_S) -> Engine:
    """An engine for `url` that connects on first use.

    `answer_s` limits the time of a statement on MySQL and MariaDB; None is no limit.

    MySQL and MariaDB run transactions as READ COMMITTED: under the default level, claims deadlock
    on the gaps between rows. On SQLite, a writer takes the lock when its transaction begins,
    because a transaction that has read cannot wait for it. Errors hide the parameters of their
    statement, which may be secrets.
    """
    if make_url(url).get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_S}, hide_parameters=True)
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    # SQLite needs no driver of MySQL.
    from app.store.mysql_connection import connect_mysql

    engine = create_engine(
        url,
        isolation_level="READ COMMITTED",
        connect_args={
            "connect_timeout": BUSY_S,
            "read_timeout": answer_s,
            "write_timeout": answer_s,
            "init_command": (
                f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, wait_timeout = {IDLE_S}"
            ),
        },
        hide_parameters=True,
        pool_pre_ping=True,
        # Each transaction is ended by itself; a further ROLLBACK is a further round trip.
        pool_reset_on_return=None,
        pool_recycle=1_800,
        max_overflow=20,
    )
    event.listen(engine, "do_connect", connect_mysql)
    return engine


def _configure_sqlite(connection: DBAPIConnection, _record: object) -> None:
    # By default the driver leaves reads outside of transactions.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    # An acknowledged replay must survive a power failure.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Database:
    """Runs functions in transactions: each gets a connection and its own arguments.

    Thread-safe: each call uses a connection of its own.
    """

    def __init__(self, url: str, keys: SecretKeys = NO_KEYS) -> None:
        self._engine = open_engine(url).execution_options(**option_of(keys))
        self._data_version = DataVersion(self._engine)
        self._writer = self._engine.execution_options(**{_WRITES: True})
        is_sqlite = self._engine.dialect.name == "sqlite"
        self._autocommit_writer = (
            self._writer
            if is_sqlite
            else self._engine.execution_options(isolation_level="AUTOCOMMIT")
        )

    def data_version(self) -> int | None:
        """A number that is equal only if nothing was committed; None if unknown.

        See `DataVersion.read`. It also changes with the commits of this object.
        """
        return self._data_version.read()

    def read(
        self,
        work: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of `work`, which reads one snapshot (SQLite) or the latest (MySQL).

        Raises:
            StoreUnavailable: the database does not answer.
        """
        with translated_errors(), self._engine.connect() as connection:
            return work(connection, *args, **kwargs)

    def write(
        self,
        work: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of `work`, which runs in a transaction that commits afterwards.

        `work` runs again from its start after a deadlock, a lock timeout, or a violated unique key.
        The next run sees what the concurrent transaction committed.

        Raises:
            StoreUnavailable: the database does not answer, or `ATTEMPTS_MAX` attempts failed.
        """
        return self._write(self._writer, lambda connection: work(connection, *args, **kwargs))

    def autocommit(
        self,
        work: Callable[Concatenate[Connection, P], T],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Return the result of `work`, whose statements MySQL commits one by one.

        Frequent writes use it: a process that is stopped between a statement and its commit keeps
        the row locked while its connection lives, so no other worker could take its replay over.

        Raises:
            StoreUnavailable: see `write`.
        """
        writer = self._autocommit_writer
        return self._write(writer, lambda connection: work(connection, *args, **kwargs))

    def _write(self, writer: Engine, work: Callable[[Connection], T]) -> T:
        with translated_errors():
            for attempt in range(1, ATTEMPTS_MAX):
                try:
                    return _write_once(writer, work)
                except (OperationalError, IntegrityError) as error:
                    if not _can_be_retried(error):
                        raise
                time.sleep(random.uniform(0, PAUSE_S * attempt))  # noqa: S311  # no secret
            return _write_once(writer, work)

    def close(self) -> None:
        """Close all connections."""
        self._data_version.close()
        self._engine.dispose()


def _write_once(writer: Engine, work: Callable[[Connection], T]) -> T:
    with writer.begin() as connection:
        return work(connection)


def _can_be_retried(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError):
        return True
    arguments: tuple[Any, ...] = error.orig.args if error.orig else ()
    return arguments[:1] in ((DEADLOCK,), (LOCK_WAIT_TIMEOUT,))


@contextmanager
def migration_engine(url: str) -> Iterator[Engine]:
    """An engine without a time limit for statements: changing a large table takes minutes."""
    engine = open_engine(url, answer_s=None)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def translated_errors() -> Iterator[None]:
    """Raise errors that mean "the database is unavailable" as `StoreUnavailable`."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, sqlite3.OperationalError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise StoreUnavailable(f"database does not answer: {reason}") from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        # SQLite raises its base class for a file that is corrupt or no database.
        reason = error.orig if isinstance(error, DBAPIError) else error
        if type(reason) is not sqlite3.DatabaseError:
            raise
        raise StoreUnavailable(f"database cannot be read: {reason}") from error
