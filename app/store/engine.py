"""One database behind a pool of connections: how transactions begin, repeat and fail."""

import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

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

from app.store.errors import StoreUnavailable

T = TypeVar("T")

ATTEMPTS_MAX: Final = 10
"""How often a transaction that lost a race is begun anew."""

PAUSE_S: Final = 0.01

BUSY_S: Final = 10
"""How long a writer of SQLite waits for another; also how long a connection may take."""

LOCK_WAIT_S: Final = 3
"""How long a statement of MySQL waits for a row before its transaction begins anew."""

DEADLOCK: Final = 1213
LOCK_WAIT_TIMEOUT: Final = 1205

ANSWER_S: Final = 20
"""How long MySQL may be silent: a network that is gone must not hold a worker past its lease."""

SILENT_S: Final = 60
"""How long a client of MySQL may be silent before the server ends its connection. A process that
was frozen in a transaction so gives its locks back; an idle connection is replaced when used."""

_WRITES: Final = "rewind_writes"


def open_engine(url: str, answer_s: int | None = ANSWER_S) -> Engine:
    """An engine for `url`; connections are made when they are needed.

    A statement may take `answer_s` on MySQL and MariaDB; None is no bound.

    On MySQL and MariaDB transactions are READ COMMITTED: under the default level, claims
    deadlock on the gaps between rows. On SQLite, a writer takes the lock when it begins, since
    one that first reads cannot wait for it any more. Errors do not show the parameters of their
    statement, which may be secrets.
    """
    if make_url(url).get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": BUSY_S}, hide_parameters=True)
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    return create_engine(
        url,
        isolation_level="READ COMMITTED",
        connect_args={
            "connect_timeout": BUSY_S,
            "read_timeout": answer_s,
            "write_timeout": answer_s,
            "init_command": (
                f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, wait_timeout = {SILENT_S}"
            ),
        },
        hide_parameters=True,
        pool_pre_ping=True,
        pool_recycle=1_800,
        max_overflow=20,
    )


def _prepare_sqlite(connection: DBAPIConnection, _record: object) -> None:
    # The driver's own way to begin leaves reads outside of any transaction.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    # A job that was acknowledged must survive a power cut too.
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Database:
    """Runs work in transactions. Thread-safe: every piece of work has its own connection."""

    def __init__(self, url: str) -> None:
        self._engine = open_engine(url)
        self._writer = self._engine.execution_options(**{_WRITES: True})
        is_sqlite = self._engine.dialect.name == "sqlite"
        self._single_writer = (
            self._writer
            if is_sqlite
            else self._engine.execution_options(isolation_level="AUTOCOMMIT")
        )

    def read(self, work: Callable[[Connection], T]) -> T:
        """What `work` finds in one snapshot (SQLite) or statement by statement (MySQL).

        Raises:
            StoreUnavailable: the database does not answer.
        """
        with translated(), self._engine.connect() as connection:
            return work(connection)

    def write(self, work: Callable[[Connection], T]) -> T:
        """What `work` gives, in a transaction that is committed when it returns.

        `work` runs again from its start after a deadlock, a lock that did not come free, or a
        unique key that somebody else took first; that time it sees what the other one did.

        Raises:
            StoreUnavailable: the database does not answer, or ten attempts were in vain.
        """
        return self._write(self._writer, work)

    def _write(self, writer: Engine, work: Callable[[Connection], T]) -> T:
        with translated():
            for attempt in range(1, ATTEMPTS_MAX):
                try:
                    return self._write_once(writer, work)
                except (OperationalError, IntegrityError) as error:
                    if not _lost_a_race(error):
                        raise
                time.sleep(random.uniform(0, PAUSE_S * attempt))  # noqa: S311  # two racers part
            return self._write_once(writer, work)

    def write_one(self, work: Callable[[Connection], T]) -> T:
        """What `work` gives, whose statements MySQL commits one by one: each must do by itself.

        A process that is stopped between its statement and its commit keeps the row locked for
        as long as its connection lives, and its job could not be taken over: what comes every
        second is written like this.

        Raises:
            StoreUnavailable: see `write`.
        """
        return self._write(self._single_writer, work)

    def _write_once(self, writer: Engine, work: Callable[[Connection], T]) -> T:
        with writer.begin() as connection:
            return work(connection)

    def close(self) -> None:
        """Close every connection of the pool."""
        self._engine.dispose()


def _lost_a_race(error: DBAPIError) -> bool:
    if isinstance(error, IntegrityError):
        return True
    arguments: tuple[Any, ...] = error.orig.args if error.orig else ()
    return arguments[:1] in ((DEADLOCK,), (LOCK_WAIT_TIMEOUT,))


@contextmanager
def patient_engine(url: str) -> Iterator[Engine]:
    """An engine whose statements may take minutes, as changes of a large table do."""
    engine = open_engine(url, answer_s=None)
    try:
        yield engine
    finally:
        engine.dispose()


@contextmanager
def translated() -> Iterator[None]:
    """Raise what says that the database is away as `StoreUnavailable`."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeout, sqlite3.OperationalError) as error:
        reason = error.orig if isinstance(error, DBAPIError) else error
        raise StoreUnavailable(f"database does not answer: {reason}") from error
    except (DatabaseError, sqlite3.DatabaseError) as error:
        # SQLite has no class of its own for a file that is another's, or broken: it says this one.
        reason = error.orig if isinstance(error, DBAPIError) else error
        if type(reason) is not sqlite3.DatabaseError:
            raise
        raise StoreUnavailable(f"database cannot be read: {reason}") from error
