"""Fixtures of certificates."""

from pathlib import Path

import pytest

from tests.support.http.certificates import self_signed


@pytest.fixture(scope="session")
def an_authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the certificate of an authority that signed no other certificate."""
    return self_signed(tmp_path_factory.mktemp("authority"), "none.example").certificate


@pytest.fixture
def few_authorities(an_authority: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this machine trust one authority, which every sender and client loads."""
    monkeypatch.setenv("SSL_CERT_FILE", str(an_authority))
