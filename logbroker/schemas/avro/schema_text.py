"""The text of a schema, with its references to other registered schemas."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A named type that a schema uses and another registered schema defines.

    `name` is the type's full name; `subject` and `version` identify the registered schema.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """An Avro schema in JSON, with its references."""

    text: str
    references: tuple[Reference, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of the text in UTF-8."""
        return len(self.text.encode())
