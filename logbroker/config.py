"""Settings of a broker and of a topic: read once, validated together, immutable.

Topic settings have Kafka's names and meanings. A broker setting `X` is the option `--x` of
`logbroker serve` and the environment variable `LOGBROKER_X`.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Literal, get_args

from logbroker.errors import ConfigurationError, InvalidConfig

UNSET: Final = 2**63 - 1
"""Kafka's value for "never" or "unlimited" in a long setting."""

TimestampType = Literal["CreateTime", "LogAppendTime"]

ANY_HOST: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, never bound
"""Listen addresses that clients cannot connect to."""

PORT_MAX: Final = 65_535

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic's logs, in the units of their Kafka names.

    If neither `flush_messages` nor `flush_ms` is set, the log uses continuous group commit: while
    one flush runs, the next group of requests gathers. Otherwise a flush starts after that many
    unflushed messages or milliseconds, whichever comes first.
    """

    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    segment_bytes: int = 2**30
    segment_ms: int = 7 * DAY_MS
    flush_messages: int = UNSET
    flush_ms: int = UNSET
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = "CreateTime"

    @property
    def flushes_continuously(self) -> bool:
        """Whether each append is flushed as soon as the disk is free."""
        return self.flush_messages == UNSET and self.flush_ms == UNSET

    @property
    def stamps_append_time(self) -> bool:
        """Whether the broker overwrites timestamps with the time of the append."""
        return self.message_timestamp_type == "LogAppendTime"


@dataclass(frozen=True, slots=True)
class TopicSetting:
    """A topic setting: Kafka's name, its documentation, its allowed values and its parser."""

    name: str
    documentation: str
    allowed: str
    parse: Callable[[str], int | str]

    @property
    def field(self) -> str:
        """The attribute of `LogConfig` that holds the value."""
        return self.name.replace(".", "_")

    @property
    def is_number(self) -> bool:
        """Whether the value is a whole number; otherwise it is one of a few words."""
        return not isinstance(LOG_CONFIG_DEFAULTS[self.field], str)


def _whole_number(lowest: int, highest: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text)
        if not lowest <= value <= highest:
            raise ValueError(text)
        return value

    return parse


def _timestamp_type(text: str) -> str:
    if text not in get_args(TimestampType):
        raise ValueError(text)
    return text


LOG_CONFIG_DEFAULTS: Final[Mapping[str, int | str]] = asdict(LogConfig())


def _number(name: str, documentation: str, lowest: int, highest: int = UNSET) -> TopicSetting:
    allowed = f"a whole number from {lowest} to {highest}"
    return TopicSetting(name, documentation, allowed, _whole_number(lowest, highest))


TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = {
    setting.name: setting
    for setting in (
        _number("retention.ms", "Delete segments older than this; -1 means unlimited.", -1),
        _number(
            "retention.bytes", "Delete oldest segments above this size; -1 means unlimited.", -1
        ),
        # Kafka's own lower bound is 14 bytes; a batch header alone has 61.
        _number("segment.bytes", "Roll to a new segment at this size.", 1024, 2**31 - 1),
        _number("segment.ms", "Roll to a new segment after this time.", 1),
        _number("flush.messages", "Flush after this many messages; see `flush.ms`.", 1),
        _number("flush.ms", "Flush after this time; if neither is set, continuously.", 0),
        _number("max.message.bytes", "The largest record batch accepted.", 0, 2**31 - 1),
        TopicSetting(
            "message.timestamp.type",
            "Whether records keep the producer's time or get the time of the append.",
            " or ".join(get_args(TimestampType)),
            _timestamp_type,
        ),
    )
}


def apply_topic_settings(config: LogConfig, settings: Mapping[str, str]) -> LogConfig:
    """Return `config` with the named settings changed; values are strings, as in Kafka's protocol.

    Raises:
        InvalidConfig: a name is unknown, or a value is out of its range; the message names it.
    """
    changes: dict[str, int | str] = {}
    for name, text in settings.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            known = ", ".join(TOPIC_SETTINGS)
            raise InvalidConfig(f"unknown topic setting {name!r}; allowed: {known}")
        try:
            changes[setting.field] = setting.parse(text)
        except ValueError:
            raise InvalidConfig(f"{name} is {text!r}; allowed is {setting.allowed}") from None
    return replace(config, **changes)  # type: ignore[arg-type]  # the table pairs names and types


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker process; names end with the unit of time."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str | None = None
    advertised_port: int | None = None
    broker_id: int = 0
    zookeeper: str | None = None
    zookeeper_session_timeout_s: float = 18.0
    auto_create_topics: bool = True
    num_partitions: int = 1
    partitions_max: int = 10_000
    connections_max: int = 4_096
    request_bytes_max: int = 100 * 2**20
    requests_in_flight_max: int = 1_024
    connection_idle_s: float = 600.0
    retention_check_s: float = 300.0
    file_delete_delay_s: float = 60.0
    producer_id_expiration_s: float = 86_400.0
    flush_threads: int = 4
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 1_000
    metrics_port: int = 0
    """The port for metrics on `host`; 0 disables it."""
    metrics_partitions_max: int = 1_000
    topic_defaults: LogConfig = LogConfig()

    def __post_init__(self) -> None:
        """Validate every field and every relation at once.

        Raises:
            ConfigurationError: the message has one line for each problem.
        """
        problems = [
            f"{name} is {value}; allowed is {lowest} to {highest}"
            for name, lowest, highest in _BROKER_RANGES
            if not lowest <= (value := getattr(self, name)) <= highest
        ]
        if self.host in ANY_HOST and self.advertised_host is None:
            problems.append(
                f"advertised_host is missing; with host {self.host!r} clients need an address to "
                "connect to"
            )
        if self.advertised_port is not None and not 1 <= self.advertised_port <= PORT_MAX:
            problems.append(
                f"advertised_port is {self.advertised_port}; allowed is 1 to {PORT_MAX}"
            )
        if self.request_bytes_max < self.topic_defaults.max_message_bytes:
            problems.append(
                f"request_bytes_max is {self.request_bytes_max}; it must hold one batch of "
                f"max.message.bytes ({self.topic_defaults.max_message_bytes})"
            )
        if self.group_min_session_timeout_ms > self.group_max_session_timeout_ms:
            problems.append(
                f"group_min_session_timeout_ms is {self.group_min_session_timeout_ms}; it must not "
                f"be above group_max_session_timeout_ms ({self.group_max_session_timeout_ms})"
            )
        if problems:
            raise ConfigurationError("\n".join(problems))


_BROKER_RANGES: Final = (
    ("port", 0, PORT_MAX),
    ("broker_id", 0, 2**31 - 1),
    ("zookeeper_session_timeout_s", 1, 600),
    ("num_partitions", 1, 10_000),
    ("partitions_max", 1, 1_000_000),
    ("connections_max", 1, 1_000_000),
    ("request_bytes_max", 1_024, 2**31 - 1),
    ("requests_in_flight_max", 1, 1_000_000),
    ("connection_idle_s", 1, 86_400 * 365),
    ("retention_check_s", 0.01, 86_400),
    ("file_delete_delay_s", 0, 86_400),
    ("producer_id_expiration_s", 1, 86_400 * 365),
    ("flush_threads", 1, 64),
    ("group_initial_rebalance_delay_ms", 0, 3_600_000),
    ("group_min_session_timeout_ms", 1, 2**31 - 1),
    ("group_max_session_timeout_ms", 1, 2**31 - 1),
    ("group_max_size", 1, 2**31 - 1),
    ("metrics_port", 0, PORT_MAX),
    ("metrics_partitions_max", 0, 1_000_000),
)
