"""Migrated databases as copies: the migrations run once for each kind of database.

That migrations work is shown in tests/unit/app/store; every other test only wants their outcome.
"""

import functools
import itertools
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pymysql
from pymysql.constants import CLIENT
from sqlalchemy import Connection, create_engine, inspect, make_url, text

from app.domain.accounts import ApiKey, Scope
from app.store import Store, migrate
from tests.support.database.api_keys import issue_key
from tests.support.database.mariadb import MariaDbServer

_SQLITE: Final = "sqlite:///"
_CREATED: Final = re.compile(r"CREATE TABLE (`\w+`)")

OPERATOR: Final = "platform"
DEVELOPERS: Final = ("alice", "bob")
"""Names of accounts, see `ReusedStore.one_with_keys`."""


def make_migrated(url: str) -> None:
    """Create the current tables in an empty database, as `migrate` does."""
    if url.startswith(_SQLITE):
        file = Path(url.removeprefix(_SQLITE))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(_sqlite_file())
    else:
        server, _, _ = url.rpartition("/")
        _run(url, _mariadb_script(server))


@functools.cache
def _sqlite_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rewind.db"
        migrate(f"{_SQLITE}{file}")
        # No data is left in a journal file.
        assert list(Path(folder).iterdir()) == [file]
        return file.read_bytes()


_numbers = itertools.count(1)


@functools.cache
def _mariadb_script(server: str) -> list[str]:
    """Return the SQL statements that create the migrated tables on this server."""
    # One server may have several addresses.
    database = f"migrated_{next(_numbers)}"
    _run(server, [f"CREATE DATABASE {database}"])
    migrate(f"{server}/{database}")
    engine = create_engine(f"{server}/{database}")
    with engine.connect() as connection:
        script = _statements(connection, database)
    engine.dispose()
    return script


@functools.cache
def reused_store_at(url: str) -> Store:
    """Return one store for all tests with this database; a test closes its connections.

    SQLAlchemy compiles each statement once for an engine: more work than to run it.
    """
    return Store.open(url)


class ReusedStore:
    """One store on a SQLite file, which each test gets with migrated, empty tables."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "rewind.db"
        self.url = f"{_SQLITE}{self.file}"
        self.keys: dict[str, tuple[ApiKey, str]] = {}
        """The keys of `one_with_keys` and their tokens, by the account's name."""
        self._store = reused_store_at(self.url)
        self._file_with_keys = b""

    @contextmanager
    def one(self) -> Iterator[Store]:
        """Yield the store for one test."""
        self._clear()
        make_migrated(self.url)
        with closing(self._store):
            yield self._store

    @contextmanager
    def one_with_keys(self) -> Iterator[Store]:
        """Yield the store for one test, with a key of an operator and one of each developer."""
        self._clear()
        self.file.write_bytes(self._file_with_keys or self._issue_keys())
        with closing(self._store):
            yield self._store

    def _issue_keys(self) -> bytes:
        """Create the keys that all tests share, and return the file with them."""
        make_migrated(self.url)
        scopes = {OPERATOR: Scope.OPERATOR} | dict.fromkeys(DEVELOPERS, Scope.DEVELOPER)
        with closing(self._store):
            self.keys = {name: issue_key(self._store, name, scopes[name]) for name in scopes}
        self._file_with_keys = self.file.read_bytes()
        return self._file_with_keys

    def _clear(self) -> None:
        if self.file.is_dir():
            self.file.rmdir()

    def take_database_away(self) -> None:
        """Make the database unavailable to the rest of this test."""
        self._store.close()
        self.file.unlink()
        self.file.mkdir()


class ReusedDatabases:
    """Migrated databases of one server. A finished test's database is reused by the next test.

    To clear the tables costs a tenth of what it costs to create them.
    """

    def __init__(self, server: MariaDbServer) -> None:
        self._server = server
        self._free: list[str] = []

    @contextmanager
    def one(self) -> Iterator[str]:
        """Yield a database with the rows of the migrations, for one test."""
        url = self._free.pop() if self._free else self._created()
        yield url
        _run(url, self._clearing(url))
        self._free.append(url)

    def _created(self) -> str:
        url = self._server.create_database()
        make_migrated(url)
        return url

    @staticmethod
    def _clearing(url: str) -> list[str]:
        script = _mariadb_script(url.rpartition("/")[0])
        tables = [match[1] for match in map(_CREATED.match, script) if match]
        rows = [statement for statement in script if statement.startswith("INSERT")]
        return [script[0], *(f"DELETE FROM {table}" for table in tables), *rows]


def _statements(connection: Connection, database: str) -> list[str]:
    # Tables with foreign keys to each other are created in any order.
    statements = ["SET foreign_key_checks = 0"]
    for name in inspect(connection).get_table_names():
        _, statement = connection.execute(text(f"SHOW CREATE TABLE {name}")).one()
        statements.append(statement)
        if connection.scalar(text(f"SELECT EXISTS (SELECT * FROM {name})")):
            statements.append(f"INSERT INTO {name} SELECT * FROM {database}.{name}")
    return statements


def _run(url: str, script: list[str]) -> None:
    """Run statements in one transaction and one request."""
    at = make_url(url)
    connection = pymysql.connect(
        host=at.host,
        port=at.port or 0,
        user=at.username,
        password=at.password or "",
        database=at.database,
        client_flag=CLIENT.MULTI_STATEMENTS,
        ssl_disabled=True,
    )
    with closing(connection), connection.cursor() as cursor:
        cursor.execute(";".join(script))
        while cursor.nextset():
            pass
        connection.commit()
