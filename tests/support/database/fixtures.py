"""Fixtures of MariaDB and SQLite databases."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.database.mariadb import MariaDbServer, require_mariadb
from tests.support.database.migrated import ReusedDatabases, ReusedStore

BOTH: Final = ("sqlite", pytest.param("mariadb", marks=pytest.mark.processes))


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """Yield one MariaDB server for all tests of this process."""
    require_mariadb()
    server = MariaDbServer()
    server.start(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def reused_databases(mariadb: MariaDbServer) -> ReusedDatabases:
    return ReusedDatabases(mariadb)


@pytest.fixture(scope="session")
def reused_store(tmp_path_factory: pytest.TempPathFactory) -> ReusedStore:
    """Return a store on SQLite for all tests of this process, one at a time."""
    return ReusedStore(tmp_path_factory.mktemp("store"))


@pytest.fixture(params=BOTH)
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an empty database, once on SQLite and once on MariaDB."""
    return create_database(request, tmp_path)


@pytest.fixture(params=BOTH)
def migrated_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the URL of a migrated database, once on SQLite and once on MariaDB."""
    if request.param == "sqlite":
        store: ReusedStore = request.getfixturevalue("reused_store")
        with store.one():
            yield store.url
    else:
        databases: ReusedDatabases = request.getfixturevalue("reused_databases")
        with databases.one() as url:
            yield url


def create_database(request: pytest.FixtureRequest, folder: Path) -> str:
    """Yield the URL of an empty database of the kind that the parameter names."""
    if request.param == "sqlite":
        return sqlite_url(folder)
    server: MariaDbServer = request.getfixturevalue("mariadb")
    return server.create_database()


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/rewind.db"
