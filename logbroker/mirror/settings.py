"""What a mirror is told: from where to where, which topics, and what is carried."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from logbroker.errors import ConfigurationError, InvalidTopic
from logbroker.mirror.topic_choice import is_pattern, pattern_problems
from logbroker.registry.topic import check_topic_name

COMPRESSIONS: Final = ("snappy", "lz4", "zstd", "gzip")

GROUP_CHARS_MAX: Final = 249

NOT_CARRIED: Final = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))
"""Topics that a mirror refuses."""

_ADDRESS: Final = re.compile(r"[^\s,]+:[0-9]{1,5}")
_ORIGIN: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Cluster(NamedTuple):
    """Where a cluster is, and what its clients are told besides."""

    servers: str
    properties: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """The settings of one mirror; the options of `logbroker mirror` tell what they mean.

    Raises:
        ConfigurationError: one line for each that cannot be: option, value, what is allowed.
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
                f"--to is {self.destination.servers!r}, as --from is; allowed is another cluster"
            )
        if problems:
            raise ConfigurationError("\n".join(problems))


def _address_problems(option: str, servers: str) -> Iterator[str]:
    for each in servers.split(","):
        if _ADDRESS.fullmatch(each.strip()) is None:
            yield f"{option} is {servers!r}; allowed is HOST:PORT[,HOST:PORT...]"
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
        if topic in NOT_CARRIED:
            yield (
                f"--topics: {topic!r} cannot be mirrored: it is the source's own, and says nothing "
                "at another cluster"
            )


def _origin_problems(origin: str | None) -> Iterator[str]:
    if origin is not None and _ORIGIN.fullmatch(origin) is None:
        yield f"--origin is {origin!r}; allowed are 1 to 64 letters, digits, '.', '_' and '-'"


def _group_problems(group: str | None) -> Iterator[str]:
    if group is not None and not 0 < len(group) <= GROUP_CHARS_MAX:
        yield f"--group is {group!r}; allowed are 1 to {GROUP_CHARS_MAX} characters"
