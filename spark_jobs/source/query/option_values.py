"""The values of options: how each is written, and what is said of one that is written otherwise."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from logbroker.client.raw import EARLIEST, TopicPartition
from spark_jobs.errors import InvalidOption

_SPAN: Final = re.compile(r"([0-9]+)\s*([a-z]*)")
_SPAN_MS: Final = {
    "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000
}  # fmt: skip
"""Spark's own names of units; a number alone is milliseconds."""


class OptionReader:
    """The options of one read; names are told apart without regard to case, as in Spark."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The options whose names begin so, without it, in small letters; values as they are."""
        return {
            name.removeprefix(prefix): value
            for name, value in self._options.items()
            if name.startswith(prefix)
        }

    def given(self, names: Collection[str]) -> list[str]:
        """Which of these there are, in their order."""
        return [name for name in names if name in self]

    def text(self, name: str) -> str | None:
        """The value without blanks around it; None where there is none."""
        found = self._options.get(name.lower())
        return None if found is None else found.strip()

    def boolean(self, name: str, *, default: bool) -> bool:
        """True or false, in letters of any case."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise refused(name, value, "true and false")
        return value.lower() == "true"

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """An integer from `least` up."""
        found = self.number_if_given(name, least=least)
        return default if found is None else found

    def number_if_given(self, name: str, *, least: int = 1) -> int | None:
        """An integer from `least` up; None where there is none."""
        value = self.text(name)
        if value is None:
            return None
        if not value.removeprefix("-").isdecimal() or int(value) < least:
            raise refused(name, value, f"integers from {least} up")
        return int(value)

    def span_ms(self, name: str, default_ms: int) -> int:
        """A length of time, such as 500ms, 10s, 15m and 1h."""
        value = self.text(name)
        if value is None:
            return default_ms
        found = _SPAN.fullmatch(value.lower())
        if found is None or found[2] not in _SPAN_MS:
            raise refused(name, value, "a number with ms, s, m, h or d")
        return int(found[1]) * _SPAN_MS[found[2]]

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of these words, in letters of any case; the first where there is none."""
        value = self.text(name)
        if value is None:
            return allowed[0]
        if value.lower() not in allowed:
            raise refused(name, value, " and ".join(allowed))
        return value.lower()

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """JSON such as {"orders":{"0":12,"1":-2}}."""
        allowed = "offsets, -2 for the first, -1 for the end"
        return read_offsets(name, self.text(name) or "", least=EARLIEST, allowed=allowed)

    def times_ms(self, name: str) -> dict[TopicPartition, int]:
        """JSON such as {"orders":{"0":1700000000000}}, in ms since 1970."""
        return read_offsets(name, self.text(name) or "", least=0, allowed="ms since 1970")


def refused(name: str, value: str, allowed: str) -> InvalidOption:
    """The error for a value that an option cannot have."""
    return InvalidOption(f"{name} is {value!r}; allowed are {allowed}")


def read_offsets(name: str, text: str, *, least: int, allowed: str) -> dict[TopicPartition, int]:
    """The number for each partition that JSON names.

    Raises:
        InvalidOption: it is no such JSON, or a number is below `least`; it names the option.
    """
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, dict):
            raise refused(name, text, 'JSON such as {"TOPIC":{"0":12}}')
        for partition, value in partitions.items():
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or value < least or not partition.isdecimal():
                raise refused(name, text, f'JSON such as {{"TOPIC":{{"0":12}}}} with {allowed}')
            found[TopicPartition(topic, int(partition))] = value
    return found


def read_assigned(name: str, text: str) -> frozenset[TopicPartition]:
    """The partitions of JSON such as {"orders":[0,1]}."""
    found = set()
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, list) or not all(map(_is_partition, partitions)):
            raise refused(name, text, 'JSON such as {"TOPIC":[0,1]}')
        found |= {TopicPartition(topic, partition) for partition in partitions}
    if not found:
        raise refused(name, text, 'JSON such as {"TOPIC":[0,1]}')
    return frozenset(found)


def as_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as they are written into a checkpoint, by topic and partition, in order."""
    tree: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        tree.setdefault(topic, {})[str(partition)] = offset
    return tree


def from_json(tree: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets of a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in tree.items()
        for partition, offset in partitions.items()
    }


def _json_object(name: str, text: str) -> dict[str, Any]:
    try:
        tree = json.loads(text)
    except ValueError:
        tree = None
    if not isinstance(tree, dict):
        raise refused(name, text, 'JSON objects such as {"TOPIC":...}')
    return tree


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
