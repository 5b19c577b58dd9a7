"""A broker that cannot be started is named with the reason."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.peers import peer
from benchmarks.peers.__main__ import main


def test_a_broker_that_is_not_installed_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(peer, "_SYSTEM_PROGRAMS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = CliRunner().invoke(main, ["--quick", "redis", "nats", "kafka", "kafka-clients"])
    assert done.exception is None, done.output
    reasons = [line for line in done.output.splitlines() if "not measured" in line]
    missing = "not measured: {0} is not installed; Debian's package {0} has it"
    assert reasons == [
        "Apache Kafka: not measured: Java is not installed",
        f"Redis Streams, everysec: {missing.format('redis-server')}",
        f"NATS JetStream: {missing.format('nats-server')}",
        "not measured: Java is not installed",
    ]


@pytest.mark.processes
def test_a_server_that_ends_at_once_shows_its_output(tmp_path: Path) -> None:
    with (
        pytest.raises(Exception, match="no such setting"),
        peer.server_process(["sh", "-c", "echo no such setting; exit 1"], tmp_path / "log", [1]),
    ):
        pytest.fail("it must not be ready")
