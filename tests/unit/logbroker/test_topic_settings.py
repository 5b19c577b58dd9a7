"""Topic settings: every one of Kafka's is known; impossible values are rejected by name."""

from dataclasses import fields

import pytest

from logbroker.config import LogConfig
from logbroker.errors import InvalidConfig
from logbroker.topic_settings import (
    LOG_CONFIG_DEFAULTS,
    TOPIC_SETTINGS,
    apply_topic_settings,
    setting_values,
)

KAFKA_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""What `kafka-configs.sh --describe --all` of Apache Kafka 4.1 prints for a new topic."""


def test_every_setting_of_kafka_is_known_with_its_default() -> None:
    assert setting_values(LogConfig()) == KAFKA_DEFAULTS


def test_every_setting_has_a_field_and_accepts_its_default() -> None:
    assert {each.field for each in TOPIC_SETTINGS.values()} == {
        field.name for field in fields(LogConfig)
    }
    assert apply_topic_settings(LogConfig(), setting_values(LogConfig())) == LogConfig()
    assert LOG_CONFIG_DEFAULTS["retention_bytes"] == -1


def test_settings_change_what_they_name_alone() -> None:
    config = apply_topic_settings(LogConfig(), {"retention.ms": "60000", "flush.messages": "10"})

    assert config == LogConfig(retention_ms=60_000, flush_messages=10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("segment.index.bytes", "52428800"),
        ("compression.zstd.level", "-5"),
        ("compression.gzip.level", "9"),
        ("follower.replication.throttled.replicas", "0:1,1:2"),
        ("leader.replication.throttled.replicas", "*"),
        ("unclean.leader.election.enable", "TRUE"),
        ("min.cleanable.dirty.ratio", "0"),
        ("local.retention.ms", "1000"),
        ("remote.log.copy.disable", "true"),
    ],
)
def test_values_without_effect_or_with_an_effect_are_accepted(name: str, value: str) -> None:
    apply_topic_settings(LogConfig(), {name: value})


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
        ("min.insync.replicas", "2"),
        ("compression.type", "gzip"),
        ("compression.gzip.level", "0"),
        ("compression.lz4.level", "18"),
        ("preallocate", "true"),
        ("preallocate", "maybe"),
        ("remote.storage.enable", "true"),
        ("index.interval.bytes", "0"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("leader.replication.throttled.replicas", "0:1;2"),
        ("cleanup.policy", "shred"),
    ],
)
def test_an_impossible_value_is_reported_with_the_possible_ones(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig) as refused:
        apply_topic_settings(LogConfig(), {name: value})

    assert str(refused.value).startswith(f"{name} is {value!r}; allowed is ")


def test_an_unknown_setting_is_refused_by_name() -> None:
    with pytest.raises(InvalidConfig, match=r"unknown topic setting 'clean'; allowed: cleanup"):
        apply_topic_settings(LogConfig(), {"clean": "compact"})


def test_compaction_lags_must_not_contradict_each_other() -> None:
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms is 9; it must not be above"):
        apply_topic_settings(
            LogConfig(), {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
        )
