"""Topic and broker settings: valid values and error messages."""

from pathlib import Path

import pytest

from logbroker.config import TOPIC_SETTINGS, BrokerConfig, LogConfig, apply_topic_settings
from logbroker.errors import ConfigurationError, InvalidConfig


def test_every_topic_setting_is_a_field_whose_default_it_takes() -> None:
    defaults = LogConfig()
    texts = {name: str(getattr(defaults, each.field)) for name, each in TOPIC_SETTINGS.items()}

    assert apply_topic_settings(defaults, texts) == defaults


def test_settings_change_what_they_name_alone() -> None:
    config = apply_topic_settings(LogConfig(), {"retention.ms": "60000", "flush.messages": "10"})

    assert config == LogConfig(retention_ms=60_000, flush_messages=10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("segment.bytes", "1023"),
        ("segment.bytes", str(2**31)),
        ("flush.messages", "0"),
        ("message.timestamp.type", "createtime"),
        ("max.message.bytes", ""),
    ],
)
def test_a_value_out_of_range_is_reported_with_the_allowed_range(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        apply_topic_settings(LogConfig(), {name: value})

    assert str(refused.value).startswith(f"{name} is {value!r}; allowed is ")


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"unknown topic setting 'cleanup\.policy'; allowed: "):
        apply_topic_settings(LogConfig(), {"cleanup.policy": "compact"})


@pytest.mark.parametrize(
    ("changes", "is_continuous"),
    [({}, True), ({"flush_ms": 100}, False), ({"flush_messages": 5}, False)],
)
def test_flushing_is_continuous_until_a_threshold_is_set(
    changes: dict[str, int], is_continuous: bool
) -> None:
    assert LogConfig(**changes).flushes_continuously is is_continuous  # type: ignore[arg-type]


def test_all_problems_of_a_broker_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        BrokerConfig(data_dir=tmp_path, port=65_536, flush_threads=0, request_bytes_max=4_096)

    assert str(refused.value).splitlines() == [
        "port is 65536; allowed is 0 to 65535",
        "flush_threads is 0; allowed is 1 to 64",
        "request_bytes_max is 4096; it must hold one batch of max.message.bytes (1048588)",
    ]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_a_broker_on_every_address_needs_a_name_for_its_clients(tmp_path: Path, host: str) -> None:
    with pytest.raises(ConfigurationError, match="advertised_host is missing"):
        BrokerConfig(data_dir=tmp_path, host=host)

    assert BrokerConfig(data_dir=tmp_path, host=host, advertised_host="log.example").host == host
