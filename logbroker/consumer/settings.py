"""The settings of a consumer, and their validation."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict

from logbroker.client.audit_format.report import NAME_BYTES_MAX
from logbroker.errors import ConfigurationError

GROUP_ID_LENGTH_MAX: Final = 255
"""In characters: even with escaping, a hundred paths fit one ZooKeeper request."""

STREAMS_MAX: Final = 10_000
"""The maximum number of streams of one topic."""

OFFSET_RESETS: Final = {"smallest": "earliest", "largest": "latest"}
"""The paper's names of the reset policies, and those of librdkafka."""


class ConsumerOptions(TypedDict, total=False):
    """The optional arguments of `ConsumerConnector`, which documents them."""

    auto_offset_reset: str
    auto_commit_interval_s: float | None
    session_timeout_s: float
    rebalance_backoff_s: float
    partition_poll_s: float
    client_settings: Mapping[str, Any] | None
    audit_tier: str | None
    zookeeper_config: Path | None


@dataclass(frozen=True, slots=True)
class ConsumerSettings:
    """The settings of one `ConsumerConnector`, which documents them, and their defaults.

    Raises:
        ConfigurationError: a setting is out of range; the message lists all problems.
    """

    zookeeper: str
    group_id: str
    bootstrap_servers: str
    auto_offset_reset: str = "largest"
    auto_commit_interval_s: float | None = 5.0
    session_timeout_s: float = 6.0
    rebalance_backoff_s: float = 1.0
    partition_poll_s: float = 10.0
    client_settings: Mapping[str, Any] | None = None
    audit_tier: str | None = None
    zookeeper_config: Path | None = None

    def __post_init__(self) -> None:
        ConfigurationError.raise_if_any(
            [
                *_missing("group_id", self.group_id),
                *_too_long("group_id", self.group_id, GROUP_ID_LENGTH_MAX),
                *_missing("bootstrap_servers", self.bootstrap_servers),
                *_not_one_of("auto_offset_reset", self.auto_offset_reset, OFFSET_RESETS),
                *_not_positive("auto_commit_interval_s", self.auto_commit_interval_s),
                *_not_positive("session_timeout_s", self.session_timeout_s),
                *_not_positive("rebalance_backoff_s", self.rebalance_backoff_s),
                *_not_positive("partition_poll_s", self.partition_poll_s),
                *reserved(self.client_settings or {}, RESERVED),
                *_no_audit_name("audit_tier", self.audit_tier),
            ]
        )

    @property
    def librdkafka(self) -> dict[str, Any]:
        """The settings of all librdkafka clients of the consumer."""
        return {
            **(self.client_settings or {}),
            "bootstrap.servers": self.bootstrap_servers,
            "auto.offset.reset": OFFSET_RESETS[self.auto_offset_reset],
        }


RESERVED: Final = frozenset(
    (
        "bootstrap.servers",
        "group.id",
        "auto.offset.reset",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "error_cb",
    )
)
"""Settings that the consumer's guarantees depend on."""


def reserved(given: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    """Yield a problem for each reserved librdkafka setting that the user has set."""
    for name in sorted(given.keys() & set(names)):
        yield f"client_settings has {name!r}, which is reserved"


def _missing(name: str, value: str) -> Iterator[str]:
    if not value:
        yield f"{name} is empty"


def _too_long(name: str, value: str, length_max: int) -> Iterator[str]:
    if len(value) > length_max:
        yield f"{name} has {len(value)} characters; maximum {length_max}"


def _not_one_of(name: str, value: str, allowed: Iterable[str]) -> Iterator[str]:
    if value not in allowed:
        yield f"{name} is {value!r}; allowed: {', '.join(allowed)}"


def _no_audit_name(name: str, value: str | None) -> Iterator[str]:
    if value is not None and not 0 < len(value.encode(errors="replace")) <= NAME_BYTES_MAX:
        yield f"{name} is empty, or has more than {NAME_BYTES_MAX} bytes"


def _not_positive(name: str, value: float | None) -> Iterator[str]:
    if value is not None and not value > 0:
        yield f"{name} is {value!r}; it must be above 0"
