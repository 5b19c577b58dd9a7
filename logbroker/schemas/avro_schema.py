"""An Avro schema out of its text: bounded, checked, with what it refers to."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import fastavro

from logbroker.schemas.avro_parser import AvroParser
from logbroker.schemas.avro_types import AvroType
from logbroker.schemas.canonical_text import canonical_text
from logbroker.schemas.errors import InvalidSchema
from logbroker.schemas.schema_text import Reference, SchemaText

TEXT_BYTES_MAX: Final = 1_000_000
"""Of one schema in UTF-8, as it came, and with its references as it is kept: `lookup` takes it."""

ALL_TEXT_BYTES_MAX: Final = 4_000_000
"""Of a schema with all that it refers to, and they refer to."""

REFERENCES_MAX: Final = 100
"""Schemas that a schema refers to, and they refer to."""

Resolve = Callable[[Reference], SchemaText]
"""Gives the schema that a reference names; raises InvalidSchema if there is none."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that was checked: its types, and its one text."""

    root: AvroType
    text: SchemaText


def parse(schema: SchemaText, resolve: Resolve, *, normalize: bool = False) -> AvroSchema:
    """Read a schema and what it refers to.

    Its text is written anew by `canonical_text`. The order of its references, which says nothing,
    is kept unless it is to be normalized.

    Raises:
        InvalidSchema: it is no schema; the message says what is wrong.
    """
    try:
        return _Reading(resolve).read(schema, normalize)
    except RecursionError:
        raise InvalidSchema("The schema is nested too deep.") from None


class _Reading:
    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._parser = AvroParser()
        self._fastavro_names: dict[str, Any] = {}
        self._done: set[SchemaText] = set()
        self._bytes = 0

    def read(self, schema: SchemaText, normalize: bool) -> AvroSchema:
        written = self._written(schema)
        for reference in schema.references:
            self._read_reference(reference)
        root = self._parser.read(written)
        self._parser.expect_defaults()
        text = _written_anew(written)
        self._show_fastavro(text)
        references = schema.references
        if normalize:
            references = tuple(sorted(set(references)))
        anew = SchemaText(text, references)
        _expect_small(anew)
        return AvroSchema(root, anew)

    def _read_reference(self, reference: Reference) -> None:
        schema = self._resolve(reference)
        if schema not in self._done:
            # Before its own references: none of them can lead back to it.
            self._done.add(schema)
            if len(self._done) > REFERENCES_MAX:
                raise InvalidSchema(f"The schema needs more than {REFERENCES_MAX} others.")
            written = self._written(schema)
            for each in schema.references:
                self._read_reference(each)
            self._parser.read(written)
            self._show_fastavro(schema.text)
        if reference.name not in self._parser.names:
            raise InvalidSchema(
                f"Version {reference.version} of subject {reference.subject!r} does not define"
                f" the type {reference.name!r} that is referred to."
            )

    def _written(self, schema: SchemaText) -> Any:
        self._count(schema.text)
        try:
            return json.loads(schema.text, parse_constant=_refuse_constant)
        except ValueError as error:
            raise InvalidSchema(f"The schema is not JSON: {error}.") from None

    def _count(self, text: str) -> None:
        # A character takes four bytes at most; a lone surrogate, which takes none, comes later.
        size = len(text.encode(errors="replace"))
        if size > TEXT_BYTES_MAX:
            raise InvalidSchema(f"The schema has {size} bytes; allowed are {TEXT_BYTES_MAX}.")
        self._bytes += size
        if self._bytes > ALL_TEXT_BYTES_MAX:
            raise InvalidSchema(
                f"The schema and all that it refers to have more than {ALL_TEXT_BYTES_MAX} bytes."
            )

    def _show_fastavro(self, text: str) -> None:
        """See that the library by which records are read takes the schema, too."""
        try:
            fastavro.parse_schema(json.loads(text), named_schemas=self._fastavro_names)
        except RecursionError:
            raise
        except Exception as error:
            # It has no one error for what it cannot read.
            raise InvalidSchema(f"The schema cannot be read: {error}.") from error


def _written_anew(written: Any) -> str:
    try:
        return canonical_text(written)
    except ValueError as error:
        raise InvalidSchema(f"The schema cannot be written as JSON: {error}.") from None


def _expect_small(anew: SchemaText) -> None:
    """Written anew, 1e15 has 18 characters; and references have names of any length."""
    references = [text for each in anew.references for text in (each.name, each.subject)]
    size = sum(len(each.encode()) for each in (anew.text, *references))
    if size > TEXT_BYTES_MAX:
        raise InvalidSchema(f"The schema takes {size} bytes; allowed are {TEXT_BYTES_MAX}.")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
