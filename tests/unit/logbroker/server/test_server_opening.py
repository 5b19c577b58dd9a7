"""A data directory is opened only by its broker in its cluster."""

from pathlib import Path

import pytest

from logbroker.config import BrokerConfig
from logbroker.errors import ConfigurationError
from logbroker.server.opening import open_data

NOW_MS = 1_700_000_000_000


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """The directory of broker 3, which is alone; closed cleanly."""
    path = tmp_path / "log"
    open_and_close(BrokerConfig(path, broker_id=3))
    return path


def open_and_close(config: BrokerConfig) -> None:
    registry, logs, _ = open_data(config, NOW_MS)
    registry.close()
    logs.close()


def content(path: Path) -> dict[str, bytes | None]:
    """Every file and folder, by its name."""
    return {
        str(each.relative_to(path)): each.read_bytes() if each.is_file() else None
        for each in path.rglob("*")
    }


def error_message(config: BrokerConfig) -> str:
    """Why the directory is not opened; it is left as it was."""
    before = content(config.data_dir)
    with pytest.raises(ConfigurationError) as refused:
        open_data(config, NOW_MS)
    assert content(config.data_dir) == before
    return str(refused.value)


def test_a_broker_reopens_its_directory(data_dir: Path) -> None:
    before = (data_dir / "meta.properties").read_bytes()
    open_and_close(BrokerConfig(data_dir, broker_id=3))
    assert (data_dir / "meta.properties").read_bytes() == before


def test_another_broker_id_is_rejected(data_dir: Path) -> None:
    assert error_message(BrokerConfig(data_dir, broker_id=4)) == (
        f"{data_dir}/meta.properties has broker.id 3; this broker has 4"
    )


def test_another_cluster_id_is_rejected(data_dir: Path, tmp_path: Path) -> None:
    open_and_close(BrokerConfig(tmp_path / "other", broker_id=3))
    (data_dir / "registry.json").write_bytes((tmp_path / "other" / "registry.json").read_bytes())
    assert error_message(BrokerConfig(data_dir, broker_id=3)).startswith(
        f"{data_dir}/meta.properties has cluster.id "
    )


def test_the_directory_of_a_standalone_broker_is_rejected_in_a_cluster(data_dir: Path) -> None:
    config = BrokerConfig(data_dir, broker_id=3, zookeeper="127.0.0.1:1")
    assert error_message(config) == (
        f"zookeeper is 127.0.0.1:1, but {data_dir}/registry.json belongs to a standalone broker"
    )


def test_the_directory_of_a_cluster_is_rejected_by_a_standalone_broker(data_dir: Path) -> None:
    (data_dir / "registry.json").unlink()
    assert error_message(BrokerConfig(data_dir, broker_id=3)).startswith(
        f"zookeeper is not set, but {data_dir} belongs to a cluster"
    )


def test_a_rejected_directory_stays_usable_for_its_broker(data_dir: Path) -> None:
    error_message(BrokerConfig(data_dir, broker_id=4))
    open_and_close(BrokerConfig(data_dir, broker_id=3))
