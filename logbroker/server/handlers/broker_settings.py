"""The settings of this broker, by Kafka's names, as DescribeConfigs returns them."""

from collections.abc import Iterator
from dataclasses import fields
from enum import IntEnum
from typing import Final, NamedTuple

from logbroker.config import BrokerConfig
from logbroker.quotas.rates import SAMPLE_S, SAMPLES
from logbroker.registry.cluster import BrokerEndpoint
from logbroker.server.handlers.committed_offsets import METADATA_CHARS_MAX
from logbroker.server.leadership import log_defaults
from logbroker.topic_settings import (
    LOG_CONFIG_DEFAULTS,
    TOPIC_SETTINGS,
    SettingType,
    TopicSetting,
    setting_text,
)


class ConfigSource(IntEnum):
    """The source of a value (KIP-226)."""

    TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Synonym(NamedTuple):
    """One of the settings that determine a value; the first one wins."""

    name: str
    value: str
    source: ConfigSource


class BrokerSetting(NamedTuple):
    """A setting of this broker with its synonyms; its value is that of the first one."""

    name: str
    kind: SettingType
    synonyms: list[Synonym]


_DEFAULTS: Final = {field.name: field.default for field in fields(BrokerConfig)}

_FIELDS: Final = (
    ("broker.id", "broker_id", SettingType.INT),
    ("node.id", "broker_id", SettingType.INT),
    ("auto.create.topics.enable", "auto_create_topics", SettingType.BOOLEAN),
    ("num.partitions", "num_partitions", SettingType.INT),
    ("max.connections", "connections_max", SettingType.INT),
    ("max.connections.per.ip", "connections_per_ip_max", SettingType.INT),
    ("socket.request.max.bytes", "request_bytes_max", SettingType.INT),
    (
        "group.initial.rebalance.delay.ms",
        "group_initial_rebalance_delay_ms",
        SettingType.INT,
    ),
    ("group.min.session.timeout.ms", "group_min_session_timeout_ms", SettingType.INT),
    ("group.max.session.timeout.ms", "group_max_session_timeout_ms", SettingType.INT),
    ("group.max.size", "group_max_size", SettingType.INT),
    ("offsets.retention.minutes", "offsets_retention_minutes", SettingType.INT),
    ("log.cleaner.dedupe.buffer.size", "cleaner_dedupe_buffer_bytes", SettingType.LONG),
)

_SECONDS: Final = (
    ("connections.max.idle.ms", "connection_idle_s", SettingType.LONG),
    ("log.retention.check.interval.ms", "retention_check_s", SettingType.LONG),
    ("log.cleaner.backoff.ms", "cleaner_backoff_s", SettingType.LONG),
    ("producer.id.expiration.ms", "producer_id_expiration_s", SettingType.INT),
)

_FIXED: Final = (
    ("default.replication.factor", "1", SettingType.INT),
    ("delete.topic.enable", "true", SettingType.BOOLEAN),
    ("log.cleaner.enable", "true", SettingType.BOOLEAN),
    ("log.cleaner.threads", "1", SettingType.INT),
    ("quota.window.num", str(SAMPLES), SettingType.INT),
    ("quota.window.size.seconds", str(int(SAMPLE_S)), SettingType.INT),
    ("controller.quota.window.num", str(SAMPLES), SettingType.INT),
    ("controller.quota.window.size.seconds", str(int(SAMPLE_S)), SettingType.INT),
    ("offset.metadata.max.bytes", str(METADATA_CHARS_MAX), SettingType.INT),
)


def broker_settings(config: BrokerConfig, endpoint: BrokerEndpoint | None) -> list[BrokerSetting]:
    """Return all settings of this broker; `endpoint` is its address in the cluster's view."""
    settings = [
        *(_of_field(config, *each) for each in _FIELDS),
        *(_of_field(config, *each, factor=1000) for each in _SECONDS),
        *(_fixed(*each) for each in _FIXED),
        *_addresses(config, endpoint),
        *_folders(config),
    ]
    # Several topic settings have a broker setting of the same name; one topic setting has none.
    for setting in TOPIC_SETTINGS.values():
        synonyms = default_synonyms(setting, config)
        if setting.broker_name is not None and synonyms:
            settings.append(BrokerSetting(setting.broker_name, setting.kind, synonyms))
    return settings


def default_synonyms(setting: TopicSetting, config: BrokerConfig) -> list[Synonym]:
    """Return the broker's setting behind the default of a topic setting, and its own default."""
    if setting.broker_name is None:
        return []
    value = getattr(log_defaults(config), setting.field)
    default = LOG_CONFIG_DEFAULTS[setting.field]
    return _synonyms(setting.broker_name, setting_text(value), setting_text(default))


def _synonyms(name: str, value: str, default: str) -> list[Synonym]:
    standard = Synonym(name, default, ConfigSource.DEFAULT)
    if value == default:
        return [standard]
    return [Synonym(name, value, ConfigSource.STATIC_BROKER), standard]


def _of_field(
    config: BrokerConfig, name: str, field: str, kind: SettingType, factor: int = 1
) -> BrokerSetting:
    value, default = (_scaled(each, factor) for each in (getattr(config, field), _DEFAULTS[field]))
    return BrokerSetting(name, kind, _synonyms(name, value, default))


def _scaled(value: object, factor: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return setting_text(value if isinstance(value, bool | str) else str(value))
    return str(int(value * factor))


def _fixed(name: str, value: str, kind: SettingType) -> BrokerSetting:
    return BrokerSetting(name, kind, [Synonym(name, value, ConfigSource.DEFAULT)])


def _static(name: str, value: str, kind: SettingType) -> BrokerSetting:
    return BrokerSetting(name, kind, [Synonym(name, value, ConfigSource.STATIC_BROKER)])


def _addresses(config: BrokerConfig, endpoint: BrokerEndpoint | None) -> Iterator[BrokerSetting]:
    if endpoint is not None:
        advertised = endpoint.listeners
        configured = {each.name: each for each in config.listeners}
        # A port that the system chose is known from the advertised address alone.
        listeners = [
            each._replace(host=own.host, port=own.port or each.port)
            if (own := configured.get(each.name))
            else each._replace(host=config.host, port=config.port or each.port)
            for each in advertised
        ]
        protocols = ",".join(f"{each.name}:{each.protocol.value}" for each in advertised)
        yield _static("listeners", ",".join(map(str, listeners)), SettingType.LIST)
        yield _static("advertised.listeners", ",".join(map(str, advertised)), SettingType.LIST)
        yield _static("listener.security.protocol.map", protocols, SettingType.STRING)
    if config.zookeeper is not None:
        yield _static("zookeeper.connect", config.zookeeper, SettingType.STRING)
        timeout_ms = str(int(config.zookeeper_session_timeout_s * 1000))
        yield _static("zookeeper.session.timeout.ms", timeout_ms, SettingType.INT)


def _folders(config: BrokerConfig) -> Iterator[BrokerSetting]:
    for name in ("log.dir", "log.dirs"):
        yield _static(name, str(config.data_dir), SettingType.STRING)
