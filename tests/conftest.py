"""What every test may ask for: a broker, a database of each kind, a whole service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from mariadb import MariaDbServer, require_mariadb

from logbroker.embedded import EmbeddedBroker

# A busy machine takes its time; no test here is about time.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker of our own on a free port, with its data in the test's folder."""
    server = EmbeddedBroker(tmp_path / "log")
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDbServer]:
    """One MariaDB server for all tests of this process."""
    require_mariadb()
    server = MariaDbServer()
    server.start(tmp_path_factory.mktemp("mariadb"))
    yield server
    server.stop()


@pytest.fixture(params=["sqlite", "mariadb"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database, once on SQLite and once on MariaDB."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/rewind.db"
    server: MariaDbServer = request.getfixturevalue("mariadb")
    return server.create_database()
