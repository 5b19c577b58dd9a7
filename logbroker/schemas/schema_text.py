"""What is registered: the text of a schema, and which registered schemas it refers to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A named type that a schema uses and another registered schema defines.

    `name` is the type's full name; `subject` and `version` tell where its schema is registered.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """An Avro schema in JSON, with what it refers to."""

    text: str
    references: tuple[Reference, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Of the text in UTF-8."""
        return len(self.text.encode())


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in its place: version `version`, from 1 on, of a subject."""

    subject: str
    version: int
    id: int
    schema: SchemaText
    is_deleted: bool = False
