from pathlib import Path

import pytest

from benchmarks.kafka_server import kafka_jars
from benchmarks.maven_jars import JarsUnavailable, fetch_jars
from benchmarks.tls_cost import PROTOCOLS, Round, Work, lines_of


def test_tls_is_compared_with_plaintext() -> None:
    rounds = [
        dict.fromkeys(PROTOCOLS, Round(Work(1.0, 1.0), Work(1.0, 1.0))),
        {
            "PLAINTEXT": Round(Work(100.0, 1.0), Work(200.0, 0.5)),
            "SSL": Round(Work(80.0, 3.0), Work(50.0, 2.0)),
        },
        {
            "PLAINTEXT": Round(Work(300.0, 2.0), Work(600.0, 0.9)),
            "SSL": Round(Work(240.0, 4.0), Work(60.0, 9.0)),
        },
    ]
    lines = list(lines_of("broker", rounds))
    assert [(line.figure, line.ratio) for line in lines] == [
        *((100.0, None), (80.0, 0.8), (1.0, None), (3.0, 3.0)),
        *((200.0, None), (50.0, 0.25), (0.9, None), (2.0, pytest.approx(2.0 / 0.9))),
    ]
    assert [line.name for line in lines if not line.name.startswith(" ")] == [
        "broker, produce, PLAINTEXT",
        "broker, consume, PLAINTEXT",
    ]


def test_jars_without_maven_are_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(JarsUnavailable, match="Maven is not installed"):
        fetch_jars("missing", ["org.example:missing:1"])
    with pytest.raises(JarsUnavailable, match="Java is not installed"):
        kafka_jars()
