"""The file with the authentication and TLS of ZooKeeper's clients."""

from pathlib import Path

import pytest

from logbroker.errors import ConfigurationError
from logbroker.registry.zookeeper.client_settings import (
    NO_SECURITY,
    ZooKeeperSecurity,
    read_zookeeper_config,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "zookeeper.properties"


def test_all_properties_are_used(path: Path) -> None:
    path.write_text(
        "zookeeper.digest.username=broker\n"
        "zookeeper.digest.password=s3cret=:\n"
        "zookeeper.set.acl=true\n"
        "zookeeper.ssl.client.enable=true\n"
        "zookeeper.ssl.endpoint.identification.algorithm=\n"
        f"zookeeper.ssl.truststore.location={path}\n"
        f"zookeeper.ssl.keystore.location={path}\n"
        f"zookeeper.ssl.key.location={path}\n"
    )
    file = str(path)
    assert read_zookeeper_config(path) == ZooKeeperSecurity(
        "broker:s3cret=:", True, True, False, file, file, file
    )
    path.write_text("zookeeper.ssl.client.enable=true\n")
    assert read_zookeeper_config(path) == ZooKeeperSecurity(has_tls=True, checks_host_name=True)
    assert read_zookeeper_config(None) is NO_SECURITY


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("zookeeper.digest.user=a", "zookeeper.digest.user is unknown; allowed: "),
        ("zookeeper.digest.username=a", "zookeeper.digest.password are used together"),
        ("zookeeper.digest.password=s3cret", "zookeeper.digest.password are used together"),
        ("zookeeper.digest.username=a:b\nzookeeper.digest.password=s3cret", "contains a colon"),
        ("zookeeper.set.acl=yes", "zookeeper.set.acl is 'yes'; allowed: true, false"),
        ("zookeeper.set.acl=true", "zookeeper.set.acl is true without zookeeper.digest.username"),
        (
            "zookeeper.ssl.endpoint.identification.algorithm=http",
            "algorithm is 'http'; allowed: HTTPS, nothing",
        ),
        ("zookeeper.ssl.truststore.location=none.pem", "is 'none.pem', which is no file"),
        ("s3cret", "line 1 is malformed"),
    ],
)
def test_problems_are_named_without_secrets(path: Path, text: str, problem: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigurationError) as refused:
        read_zookeeper_config(path)
    assert problem in str(refused.value)
    assert "s3cret" not in str(refused.value)
