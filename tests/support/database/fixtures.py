"""MariaDB and SQLite, as fixtures."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.database.mariadb import MariaDbServer, require_mariadb


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """One MariaDB server for all tests of this process."""
    require_mariadb()
    server = MariaDbServer()
    server.start(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", pytest.param("mariadb", marks=pytest.mark.processes)])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, once on SQLite and once on MariaDB."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/rewind.db"
    server: MariaDbServer = request.getfixturevalue("mariadb")
    return server.create_database()
