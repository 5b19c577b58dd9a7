"""Settings of a broker and of a topic: read once, validated together, immutable.

Topic settings have Kafka's names and meanings; `topic_settings` parses them. A broker setting `X`
is the option `--x` of `logbroker serve` and the environment variable `LOGBROKER_X`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from logbroker.errors import ConfigurationError
from logbroker.listeners import (
    ANY_HOST,
    PORT_MAX,
    ListenerConfig,
    SecurityProtocol,
    find_problems,
    find_unauthenticated,
)

UNSET: Final = 2**63 - 1
"""Kafka's value for "never" or "unlimited" in a long setting."""

ClientAuth = Literal["none", "requested", "required"]
"""Whether clients of SSL listeners authenticate with a certificate: Kafka's `ssl.client.auth`."""

SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

TimestampType = Literal["CreateTime", "LogAppendTime"]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

TIMESTAMP_MIN: Final = -(2**63)
TIMESTAMP_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one topic's logs, in the units of their Kafka names.

    If neither `flush_messages` nor `flush_ms` is set, the log uses continuous group commit: while
    one flush runs, the next group of requests gathers. Otherwise a flush starts after that many
    unflushed messages or milliseconds, whichever comes first.
    """

    cleanup_policy: str = "delete"
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = -1
    segment_bytes: int = 2**30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 2**20
    index_interval_bytes: int = 4096
    flush_messages: int = UNSET
    flush_ms: int = UNSET
    file_delete_delay_ms: int = MINUTE_MS
    preallocate: bool = False
    max_message_bytes: int = 1_048_588
    message_timestamp_type: TimestampType = "CreateTime"
    message_timestamp_before_max_ms: int = UNSET
    message_timestamp_after_max_ms: int = HOUR_MS
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = UNSET
    min_cleanable_dirty_ratio: float = 0.5
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False
    leader_replication_throttled_replicas: str = ""
    follower_replication_throttled_replicas: str = ""
    remote_storage_enable: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    local_retention_ms: int = -2
    local_retention_bytes: int = -2

    @property
    def is_compacted(self) -> bool:
        """Whether the log is compacted; records without a key are rejected then."""
        return "compact" in self.cleanup_policy

    @property
    def retention(self) -> tuple[int, int]:
        """Retention time and size; unlimited unless old segments are deleted."""
        if "delete" in self.cleanup_policy:
            return self.retention_ms, self.retention_bytes
        return -1, -1

    @property
    def flushes_continuously(self) -> bool:
        """Whether each append is flushed as soon as the disk is free."""
        return self.flush_messages == UNSET and self.flush_ms == UNSET

    @property
    def stamps_append_time(self) -> bool:
        """Whether the broker overwrites timestamps with the time of the append."""
        return self.message_timestamp_type == "LogAppendTime"

    def timestamp_range(self, now_ms: int) -> tuple[int, int]:
        """Return the smallest and the largest timestamp of records that are appended now."""
        if self.stamps_append_time:
            return TIMESTAMP_MIN, TIMESTAMP_MAX
        return (
            max(now_ms - self.message_timestamp_before_max_ms, TIMESTAMP_MIN),
            min(now_ms + self.message_timestamp_after_max_ms, TIMESTAMP_MAX),
        )


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """The settings of one broker process; names end with the unit of time."""

    data_dir: Path
    host: str = "127.0.0.1"
    port: int = 9092
    advertised_host: str | None = None
    advertised_port: int | None = None
    listeners: tuple[ListenerConfig, ...] = ()
    """The listeners by name; without any, a PLAINTEXT listener at `host` and `port`."""
    insecure: bool = False
    """Whether a listener beyond loopback may admit clients without authentication."""
    ssl_certfile: Path | None = None
    """The certificate chain of listeners with TLS, in PEM."""
    ssl_keyfile: Path | None = None
    """Its key; None means that `ssl_certfile` contains it."""
    ssl_ca_file: Path | None = None
    """The certificates that sign those of clients."""
    ssl_client_auth: ClientAuth = "none"
    sasl_enabled_mechanisms: tuple[str, ...] = SASL_MECHANISMS
    connections_max_reauth_ms: int = 0
    """How long a SASL session lasts; 0 means without limit."""
    connection_failed_authentication_delay_ms: int = 100
    broker_id: int = 0
    zookeeper: str | None = None
    zookeeper_config: Path | None = None
    """A file of properties: digest authentication, ACLs and TLS for ZooKeeper."""
    zookeeper_session_timeout_s: float = 18.0
    auto_create_topics: bool = False
    num_partitions: int = 1
    partitions_max: int = 10_000
    connections_max: int = 4_096
    connections_per_ip_max: int = 2**31 - 1
    request_bytes_max: int = 100 * 2**20
    request_memory_bytes_max: int = 256 * 2**20
    requests_in_flight_max: int = 1_024
    connection_idle_s: float = 600.0
    retention_check_s: float = 300.0
    file_delete_delay_s: float = 60.0
    log_retry_s: float = 60.0
    producer_id_expiration_s: float = 86_400.0
    flush_threads: int = 4
    cleaner_backoff_s: float = 15.0
    cleaner_dedupe_buffer_bytes: int = 128 * 2**20
    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 1_000
    offsets_retention_minutes: int = 10_080
    authorizer: bool = False
    """Whether access control lists decide what clients may do."""
    super_users: str = ""
    """Principals that may do everything, as `User:NAME` separated by semicolons."""
    allow_everyone_if_no_acl_found: bool = False
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
        problems += find_problems(self.listeners)
        if not self.insecure:
            is_required = self.ssl_client_auth == "required"
            problems += find_unauthenticated(
                self.served_listeners, has_required_certificate=is_required
            )
        if self.ssl_certfile is None and any(each.protocol.has_tls for each in self.listeners):
            problems.append("ssl_certfile is missing; listeners with SSL or SASL_SSL require it")
        if unknown := set(self.sasl_enabled_mechanisms) - set(SASL_MECHANISMS):
            problems.append(
                f"sasl_enabled_mechanisms has {', '.join(sorted(unknown))}; allowed: "
                f"{', '.join(SASL_MECHANISMS)}"
            )
        if self.ssl_ca_file is None and self.ssl_client_auth != "none":
            problems.append(
                f"ssl_ca_file is missing; ssl_client_auth={self.ssl_client_auth} requires it"
            )
        if not self.listeners and self.host in ANY_HOST and self.advertised_host is None:
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

    @property
    def served_listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners to open, at least one; the first is the one that `host` stands for."""
        return self.listeners or (
            ListenerConfig(
                SecurityProtocol.PLAINTEXT.value,
                SecurityProtocol.PLAINTEXT,
                self.host,
                self.port,
                self.advertised_host,
                self.advertised_port,
            ),
        )


_BROKER_RANGES: Final = (
    ("port", 0, PORT_MAX),
    ("broker_id", 0, 2**31 - 1),
    ("zookeeper_session_timeout_s", 1, 600),
    ("num_partitions", 1, 10_000),
    ("partitions_max", 1, 1_000_000),
    ("connections_max", 1, 1_000_000),
    ("connections_per_ip_max", 1, 2**31 - 1),
    ("request_bytes_max", 1_024, 2**31 - 1),
    ("request_memory_bytes_max", 1_024, 2**63 - 1),
    ("requests_in_flight_max", 1, 1_000_000),
    ("connection_idle_s", 1, 86_400 * 365),
    ("retention_check_s", 0.01, 86_400),
    ("file_delete_delay_s", 0, 86_400),
    ("log_retry_s", 0.01, 86_400),
    ("producer_id_expiration_s", 1, 86_400 * 365),
    ("flush_threads", 1, 64),
    ("cleaner_backoff_s", 0.01, 86_400),
    ("cleaner_dedupe_buffer_bytes", 1_024, 2**40),
    ("group_initial_rebalance_delay_ms", 0, 3_600_000),
    ("group_min_session_timeout_ms", 1, 2**31 - 1),
    ("group_max_session_timeout_ms", 1, 2**31 - 1),
    ("group_max_size", 1, 2**31 - 1),
    ("offsets_retention_minutes", 1, 2**31 - 1),
    ("connections_max_reauth_ms", 0, 2**31 - 1),
    ("connection_failed_authentication_delay_ms", 0, 10_000),
    ("metrics_port", 0, PORT_MAX),
    ("metrics_partitions_max", 0, 1_000_000),
)
