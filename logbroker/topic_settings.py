"""The settings of a topic: Kafka's names and types, and the values that are possible here.

Every topic setting of Kafka 4.1 is known. A value that would require something that logbroker does
not have, such as replication or tiered storage, is rejected with the values that are possible.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from typing import Final, get_args

from logbroker.config import UNSET, LogConfig, TimestampType
from logbroker.errors import InvalidConfig

Value = int | float | bool | str

INT_MAX: Final = 2**31 - 1


class SettingType(IntEnum):
    """The type of a value, by its number in DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """A topic setting: its name, the broker's name of its default, its type and allowed values."""

    name: str
    broker_name: str | None
    """Kafka's broker setting with the default of this one; None if Kafka has none."""
    kind: SettingType
    documentation: str
    allowed: str
    parse: Callable[[str], Value]

    @property
    def field(self) -> str:
        """The attribute of `LogConfig` that holds the value."""
        return self.name.replace(".", "_")


LOG_CONFIG_DEFAULTS: Final[Mapping[str, Value]] = asdict(LogConfig())


def setting_text(value: Value) -> str:
    """Return a value as text, in Kafka's notation."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def setting_values(config: LogConfig) -> dict[str, str]:
    """Return every topic setting as text, by its Kafka name."""
    return {
        name: setting_text(getattr(config, setting.field))
        for name, setting in TOPIC_SETTINGS.items()
    }


def apply_topic_settings(config: LogConfig, settings: Mapping[str, str]) -> LogConfig:
    """Return `config` with the named settings changed; values are strings, as in Kafka's protocol.

    Raises:
        InvalidConfig: a name is unknown, a value is not possible, or two values contradict each
            other; the message names it.
    """
    changes: dict[str, Value] = {}
    for name, text in settings.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            known = ", ".join(TOPIC_SETTINGS)
            raise InvalidConfig(f"unknown topic setting {name!r}; allowed: {known}")
        try:
            changes[setting.field] = setting.parse(text)
        except ValueError:
            raise InvalidConfig(f"{name} is {text!r}; allowed is {setting.allowed}") from None
    changed = replace(config, **changes)  # type: ignore[arg-type]  # the table pairs names and types
    if changed.min_compaction_lag_ms > changed.max_compaction_lag_ms:
        raise InvalidConfig(
            f"min.compaction.lag.ms is {changed.min_compaction_lag_ms}; it must not be above "
            f"max.compaction.lag.ms ({changed.max_compaction_lag_ms})"
        )
    return changed


def _number(
    name: str,
    broker_name: str | None,
    documentation: str,
    lowest: int,
    highest: int = UNSET,
) -> TopicSetting:
    def parse(text: str) -> int:
        value = int(text)
        if not lowest <= value <= highest:
            raise ValueError(text)
        return value

    kind = SettingType.LONG if highest == UNSET else SettingType.INT
    allowed = f"a whole number from {lowest} to {highest}"
    return TopicSetting(name, broker_name, kind, documentation, allowed, parse)


def _level(name: str, lowest: int, highest: int, default: int) -> TopicSetting:
    def parse(text: str) -> int:
        value = int(text)
        if not (lowest <= value <= highest or value == default):
            raise ValueError(text)
        return value

    allowed = f"a whole number from {lowest} to {highest}"
    if not lowest <= default <= highest:
        allowed = f"{default}, or {allowed}"
    codec = name.split(".")[1]
    documentation = f"No effect: producers choose the level of {codec}."
    return TopicSetting(name, name, SettingType.INT, documentation, allowed, parse)


def _one_of(
    name: str,
    broker_name: str | None,
    documentation: str,
    words: Iterable[str],
) -> TopicSetting:
    possible = tuple(words)

    def parse(text: str) -> str:
        if text not in possible:
            raise ValueError(text)
        return text

    allowed = " or ".join(possible)
    return TopicSetting(name, broker_name, SettingType.STRING, documentation, allowed, parse)


def _boolean(
    name: str,
    broker_name: str | None,
    documentation: str,
    possible: tuple[bool, ...] = (False, True),
) -> TopicSetting:
    values = {setting_text(value): value for value in possible}

    def parse(text: str) -> bool:
        value = values.get(text.strip().lower())
        if value is None:
            raise ValueError(text)
        return value

    allowed = " or ".join(values)
    return TopicSetting(name, broker_name, SettingType.BOOLEAN, documentation, allowed, parse)


def _only_number(
    name: str, broker_name: str | None, documentation: str, possible: int
) -> TopicSetting:
    def parse(text: str) -> int:
        if int(text) != possible:
            raise ValueError(text)
        return possible

    return TopicSetting(name, broker_name, SettingType.INT, documentation, f"{possible}", parse)


def _policy(text: str) -> str:
    policies = [each.strip() for each in text.split(",")]
    if len(set(policies)) < len(policies) or not {"compact", "delete"}.issuperset(policies):
        raise ValueError(text)
    return ",".join(policies)


def _ratio(name: str, broker_name: str, documentation: str) -> TopicSetting:
    def parse(text: str) -> float:
        value = float(text)
        if not 0 <= value <= 1:
            raise ValueError(text)
        return value

    return TopicSetting(
        name, broker_name, SettingType.DOUBLE, documentation, "a number from 0 to 1", parse
    )


_THROTTLED: Final = re.compile(r"\*|none|(\d+:\d+(, ?\d+:\d+)*)?")


def _throttled_replicas(name: str) -> TopicSetting:
    def parse(text: str) -> str:
        if _THROTTLED.fullmatch(text) is None:
            raise ValueError(text)
        return text

    documentation = "No effect: partitions are not replicated."
    allowed = "*, none, or PARTITION:BROKER pairs separated by commas"
    return TopicSetting(name, None, SettingType.LIST, documentation, allowed, parse)


TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    setting.name: setting
    for setting in (
        TopicSetting(
            "cleanup.policy",
            "log.cleanup.policy",
            SettingType.LIST,
            "Delete old segments, keep the last record of each key, or both.",
            "delete, compact or compact,delete",
            _policy,
        ),
        _number(
            "retention.ms",
            "log.retention.ms",
            "Delete segments older than this; -1 means unlimited.",
            -1,
        ),
        _number(
            "retention.bytes",
            "log.retention.bytes",
            "Delete oldest segments above this size; -1 means unlimited.",
            -1,
        ),
        # Kafka's own lower bound is 1 MiB since 4.0; a batch header alone has 61 bytes.
        _number("segment.bytes", "log.segment.bytes", "Roll at this size.", 1024, INT_MAX),
        _number("segment.ms", "log.roll.ms", "Roll to a new segment after this time.", 1),
        _number(
            "segment.jitter.ms",
            "log.roll.jitter.ms",
            "Roll up to this much earlier than segment.ms, at random.",
            0,
        ),
        _number(
            "segment.index.bytes",
            "log.index.size.max.bytes",
            "Roll before an index of the segment is larger than this.",
            4096,
            INT_MAX,
        ),
        _only_number(
            "index.interval.bytes",
            "log.index.interval.bytes",
            "Bytes between two entries of an index.",
            4096,
        ),
        _number(
            "flush.messages",
            "log.flush.interval.messages",
            "Flush after this many messages; see `flush.ms`.",
            1,
        ),
        _number(
            "flush.ms",
            "log.flush.interval.ms",
            "Flush after this time; if neither is set, continuously.",
            0,
        ),
        _number(
            "file.delete.delay.ms",
            "log.segment.delete.delay.ms",
            "Remove the files of deleted segments after this time.",
            0,
        ),
        _boolean(
            "preallocate",
            "log.preallocate",
            "Whether a new segment file is allocated in full.",
            (False,),
        ),
        _number(
            "max.message.bytes",
            "message.max.bytes",
            "The largest record batch accepted.",
            0,
            INT_MAX,
        ),
        _one_of(
            "message.timestamp.type",
            "log.message.timestamp.type",
            "Whether records keep the producer's time or get the time of the append.",
            get_args(TimestampType),
        ),
        _number(
            "message.timestamp.before.max.ms",
            "log.message.timestamp.before.max.ms",
            "Reject records with a timestamp more than this before the broker's time.",
            0,
        ),
        _number(
            "message.timestamp.after.max.ms",
            "log.message.timestamp.after.max.ms",
            "Reject records with a timestamp more than this after the broker's time.",
            0,
        ),
        _one_of(
            "compression.type",
            "compression.type",
            "Batches are stored as producers compress them.",
            ("producer",),
        ),
        _level("compression.gzip.level", 1, 9, -1),
        _level("compression.lz4.level", 1, 17, 9),
        _level("compression.zstd.level", -131072, 22, 3),
        _number(
            "delete.retention.ms",
            "log.cleaner.delete.retention.ms",
            "Compaction removes a tombstone this long after it was cleaned.",
            0,
        ),
        _number(
            "min.compaction.lag.ms",
            "log.cleaner.min.compaction.lag.ms",
            "A record is not compacted before this age.",
            0,
        ),
        _number(
            "max.compaction.lag.ms",
            "log.cleaner.max.compaction.lag.ms",
            "A record is compacted at the latest at this age.",
            1,
        ),
        _ratio(
            "min.cleanable.dirty.ratio",
            "log.cleaner.min.cleanable.ratio",
            "Compact when this part of the log was not compacted yet.",
        ),
        _only_number(
            "min.insync.replicas",
            "min.insync.replicas",
            "A partition has one replica, which is in sync.",
            1,
        ),
        _boolean(
            "unclean.leader.election.enable",
            "unclean.leader.election.enable",
            "No effect: the only replica of a partition is its leader.",
        ),
        _throttled_replicas("leader.replication.throttled.replicas"),
        _throttled_replicas("follower.replication.throttled.replicas"),
        _boolean("remote.storage.enable", None, "Tiered storage is not supported.", (False,)),
        _boolean("remote.log.copy.disable", None, "No effect without tiered storage."),
        _boolean("remote.log.delete.on.disable", None, "No effect without tiered storage."),
        _number("local.retention.ms", None, "No effect without tiered storage.", -2),
        _number("local.retention.bytes", None, "No effect without tiered storage.", -2),
    )
}
