"""Which schemas may follow each other, by levels as Confluent's registry has them."""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from logbroker.schemas.avro_types import AvroType
from logbroker.schemas.resolution import Mismatch, mismatches

TOLD_MAX: Final = 100
"""Problems after which no further version is looked at."""


class Compatibility(Enum):
    """A level: which schemas must read what which others wrote.

    BACKWARD: the new one reads what the latest wrote. FORWARD: the latest reads what the new one
    will write. FULL: both. The transitive ones ask it of all versions, not of the latest alone.
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
        """Whether all versions count, not the latest alone."""
        return self.value.endswith("_TRANSITIVE")

    @property
    def is_backward(self) -> bool:
        """Whether the new schema must read what earlier ones wrote."""
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_forward(self) -> bool:
        """Whether earlier schemas must read what the new one writes."""
        return self.value.startswith(("FORWARD", "FULL"))


def incompatibilities(
    new: AvroType, earlier: Iterable[tuple[str, AvroType]], level: Compatibility
) -> list[str]:
    """What keeps a new schema from following earlier ones, each of which comes with its name.

    Each problem has its place in the reader's schema, as a JSON pointer, its kind, and who is the
    reader and who the writer. Empty if nothing is in the way. Of many, the first are told.
    """
    found: list[str] = []
    for name, old in earlier:
        if level.is_backward:
            found += _told(mismatches(new, old), "the new schema", name)
        if level.is_forward:
            found += _told(mismatches(old, new), name, "the new schema")
        if len(found) >= TOLD_MAX:
            break
    return found


def _told(found: Iterable[Mismatch], reader: str, writer: str) -> Iterator[str]:
    for each in found:
        sides = f"reader is {reader}, writer is {writer}"
        yield f"{each.path}: {each.problem} ({each.kind}; {sides})"
