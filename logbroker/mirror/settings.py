"""The settings of a mirror: source, destination, topics, origin."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logbroker.errors import ConfigurationError, InvalidTopic
from logbroker.mirror.domain.topic_selection import is_pattern, pattern_problems
from logbroker.registry.topic import check_topic_name

COMPRESSIONS: Final = ("snappy", "lz4", "zstd", "gzip")

GROUP_CHARS_MAX: Final = 249

NEVER_MIRRORED: Final = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state")
)
"""Internal topics that a mirror rejects."""

_ADDRESS: Final = re.compile(r"[^\s,]+:[0-9]{1,5}")
_ORIGIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Cluster(NamedTuple):
    """The address of a cluster, and properties for its clients."""

    servers: str
    properties: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The settings of one mirror, as described by the options of `logbroker mirror`.

    Raises:
        ConfigurationError: one line for each invalid one: option, value, what is allowed.
    """

    source: Cluster
    destination: Cluster
    topics: tuple[str, ...]
    origin: str | None = None
    group: str | None = None
    compression: str = field(default=COMPRESSIONS[0])

    def __post_init__(self) -> None:
        problems = [
            *_address_problems("--from", self.source.servers),
            *_address_problems("--to", self.destination.servers),
            *_topic_problems(self.topics),
            *_origin_problems(self.origin),
            *_group_problems(self.group),
        ]
        if self.source.servers == self.destination.servers:
            problems.append(
                f"--to equals --from: {self.destination.servers!r}; allowed: another cluster"
            )
        if problems:
            raise ConfigurationError("\n".join(problems))


def _address_problems(option: str, servers: str) -> Iterator[str]:
    for each in servers.split(","):
        if _ADDRESS.fullmatch(each.strip()) is None:
            yield f"invalid {option}: {servers!r}; allowed: HOST:PORT[,HOST:PORT...]"
            return


def _topic_problems(topics: tuple[str, ...]) -> Iterator[str]:
    for topic in topics:
        if is_pattern(topic):
            yield from (f"--topics: {problem}" for problem in pattern_problems(topic))
            continue
        try:
            check_topic_name(topic)
        except InvalidTopic as error:
            yield f"--topics: {error}"
        if topic in NEVER_MIRRORED:
            yield (
                f"--topics: {topic!r} cannot be mirrored: internal topics have no meaning in "
                "another cluster"
            )


def _origin_problems(origin: str | None) -> Iterator[str]:
    if origin is not None and _ORIGIN.fullmatch(origin) is None:
        yield f"invalid --origin: {origin!r}; allowed: 1 to 64 letters, digits, '.', '_' and '-'"


def _group_problems(group: str | None) -> Iterator[str]:
    if group is not None and not 0 < len(group) <= GROUP_CHARS_MAX:
        yield f"invalid --group: {group!r}; allowed: 1 to {GROUP_CHARS_MAX} characters"
