"""Compatibility levels, as in Confluent's registry."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from logbroker.schemas.avro.resolution import Mismatch, mismatches
from logbroker.schemas.avro.types import AvroType

MESSAGES_MAX: Final = 100
"""The check stops after this many incompatibilities."""


class Compatibility(Enum):
    """A compatibility level: which schemas must be able to read data of which others.

    BACKWARD: the new schema reads data of the latest one. FORWARD: the latest one reads data of the
    new one. FULL: both. The transitive levels compare with all versions, not only the latest.
    """

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def is_transitive(self) -> bool:
        """Whether all versions are compared, not only the latest."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """Whether the new schema must read data of earlier ones."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """Whether earlier schemas must read data of the new one."""
        return self.value.startswith(("FORWARD", "FULL"))


def incompatibilities(
    new: AvroType, earlier: Iterable[tuple[str, AvroType]], level: Compatibility
) -> list[str]:
    """List the reasons why a new schema is incompatible with earlier ones, given with their names.

    Each reason has its place in the reader's schema as a JSON pointer, its kind, and which schema
    is the reader and which the writer. Empty if the schemas are compatible. The list is cut after a
    limit.
    """
    found: list[str] = []
    for name, old in earlier:
        if level.is_backward:
            found += _messages(mismatches(new, old), "the new schema", name)
        if level.is_forward:
            found += _messages(mismatches(old, new), name, "the new schema")
        if len(found) >= MESSAGES_MAX:
            break
    return found


def _messages(found: Iterable[Mismatch], reader: str, writer: str) -> Iterator[str]:
    for each in found:
        sides = f"reader is {reader}, writer is {writer}"
        yield f"{each.path}: {each.problem} ({each.kind}; {sides})"
