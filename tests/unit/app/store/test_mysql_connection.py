"""TLS of connections to MySQL, by the options of the database's URL."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from app.store.engine import open_engine
from tests.support.database.mariadb import MariaDbServer, require_mariadb
from tests.support.http.certificates import CertificateFiles, self_signed

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> CertificateFiles:
    return self_signed(tmp_path_factory.mktemp("own"), "127.0.0.1")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, certificate: CertificateFiles) -> Iterator[str]:
    """The URL of a database on a server with TLS."""
    require_mariadb()
    server = MariaDbServer(certificate)
    server.start(tmp_path_factory.mktemp("tls"))
    yield server.create_database()
    server.stop()


def cipher(url: str) -> str:
    """The cipher of a new connection, empty without TLS."""
    engine = open_engine(url)
    try:
        with engine.connect() as connection:
            _, found = connection.execute(text("SHOW STATUS LIKE 'Ssl_cipher'")).one()
            return str(found)
    finally:
        engine.dispose()


def test_connections_are_encrypted_where_the_server_can(url: str, mariadb: MariaDbServer) -> None:
    assert cipher(url)
    assert not cipher(mariadb.create_database())


def test_a_connection_that_verifies_nothing_loads_no_authorities(url: str) -> None:
    engine = open_engine(url)
    with closing(engine.raw_connection()) as connection:
        assert connection.driver_connection is not None
        assert connection.driver_connection.ctx.cert_store_stats()["x509"] == 0
    engine.dispose()


def test_the_certificate_of_the_server_is_verified_if_the_url_says_so(
    url: str, mariadb: MariaDbServer, certificate: CertificateFiles, tmp_path: Path
) -> None:
    assert cipher(f"{url}?ssl_ca={certificate.certificate}&ssl_check_hostname=true")
    other = self_signed(tmp_path, "127.0.0.1").certificate
    with pytest.raises(OperationalError, match="certificate verify failed"):
        cipher(f"{url}?ssl_ca={other}&ssl_check_hostname=true")
    with pytest.raises(OperationalError, match="SSL"):
        cipher(f"{mariadb.create_database()}?ssl_ca={certificate.certificate}")
