"""Parses the values of options."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from logbroker.client.raw.parsing.metadata import EARLIEST, TopicPartition
from spark_jobs.errors import InvalidOption

_SPAN: Final = re.compile(r"([0-9]+)\s*([a-z]*)")
_SPAN_MS: Final = {
    "": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000
}  # fmt: skip
"""Spark's names of units; a plain number is in milliseconds."""


class OptionReader:
    """The options of a read; names are case-insensitive, as in Spark."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._options

    def prefixed(self, prefix: str) -> dict[str, str]:
        """The options whose names have this prefix, without it, in lower case; values unchanged."""
        return {
            name.removeprefix(prefix): value
            for name, value in self._options.items()
            if name.startswith(prefix)
        }

    def given(self, names: Collection[str]) -> list[str]:
        """Which of these options are given, in this order."""
        return [name for name in names if name in self]

    def text(self, name: str) -> str | None:
        """The stripped value; None if the option is not given."""
        found = self._options.get(name.lower())
        return None if found is None else found.strip()

    def boolean(self, name: str, *, default: bool) -> bool:
        """True or false, case-insensitive."""
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise invalid_value(name, value, "true and false")
        return value.lower() == "true"

    def number(self, name: str, default: int, *, least: int = 1) -> int:
        """An integer of at least `least`."""
        found = self.number_if_given(name, least=least)
        return default if found is None else found

    def number_if_given(self, name: str, *, least: int = 1) -> int | None:
        """An integer of at least `least`; None if the option is not given."""
        value = self.text(name)
        if value is None:
            return None
        if not value.removeprefix("-").isdecimal() or int(value) < least:
            raise invalid_value(name, value, f"integers from {least}")
        return int(value)

    def span_ms(self, name: str, default_ms: int) -> int:
        """A duration such as 500ms, 10s, 15m or 1h."""
        value = self.text(name)
        if value is None:
            return default_ms
        found = _SPAN.fullmatch(value.lower())
        if found is None or found[2] not in _SPAN_MS:
            raise invalid_value(name, value, "a number with ms, s, m, h or d")
        return int(found[1]) * _SPAN_MS[found[2]]

    def choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """One of these words, case-insensitive; the first if the option is not given."""
        value = self.text(name)
        if value is None:
            return allowed[0]
        if value.lower() not in allowed:
            raise invalid_value(name, value, " and ".join(allowed))
        return value.lower()

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        """JSON such as {"orders":{"0":12,"1":-2}}."""
        allowed = "offsets, -2 (earliest) and -1 (latest)"
        return read_offsets(name, self.text(name) or "", least=EARLIEST, allowed=allowed)

    def times_ms(self, name: str) -> dict[TopicPartition, int]:
        """JSON such as {"orders":{"0":1700000000000}}, in ms since 1970."""
        return read_offsets(name, self.text(name) or "", least=0, allowed="ms since 1970")


def invalid_value(name: str, value: str, allowed: str) -> InvalidOption:
    """The error for an invalid value of an option."""
    return InvalidOption(f"{name} is {value!r}; allowed are {allowed}")


def read_offsets(name: str, text: str, *, least: int, allowed: str) -> dict[TopicPartition, int]:
    """The number of each partition in JSON.

    Raises:
        InvalidOption: it is malformed, or a number is below `least`.
    """
    found: dict[TopicPartition, int] = {}
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, dict):
            raise invalid_value(name, text, 'JSON such as {"TOPIC":{"0":12}}')
        for partition, value in partitions.items():
            is_number = isinstance(value, int) and not isinstance(value, bool)
            if not is_number or value < least or not partition.isdecimal():
                raise invalid_value(
                    name, text, f'JSON such as {{"TOPIC":{{"0":12}}}} with {allowed}'
                )
            found[TopicPartition(topic, int(partition))] = value
    return found


def read_assigned(name: str, text: str) -> frozenset[TopicPartition]:
    """The partitions in JSON such as {"orders":[0,1]}."""
    found = set()
    for topic, partitions in _json_object(name, text).items():
        if not isinstance(partitions, list) or not all(map(_is_partition, partitions)):
            raise invalid_value(name, text, 'JSON such as {"TOPIC":[0,1]}')
        found |= {TopicPartition(topic, partition) for partition in partitions}
    if not found:
        raise invalid_value(name, text, 'JSON such as {"TOPIC":[0,1]}')
    return frozenset(found)


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets in the form of a checkpoint, by topic and partition, sorted."""
    tree: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        tree.setdefault(topic, {})[str(partition)] = offset
    return tree


def offsets_from_json(tree: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint."""
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
        raise invalid_value(name, text, 'JSON objects such as {"TOPIC":...}')
    return tree


def _is_partition(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
