"""Parse the text of an Avro schema, with size limits, together with the schemas it references."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import fastavro

from logbroker.schemas.avro.canonical_text import canonical_text
from logbroker.schemas.avro.parser import AvroParser
from logbroker.schemas.avro.schema_text import Reference, SchemaText
from logbroker.schemas.avro.types import AvroType
from logbroker.schemas.errors import InvalidSchema

TEXT_BYTES_MAX: Final = 1_000_000
"""Size of one schema in UTF-8, as received, and as stored with its references: `lookup` can read
it.
"""

ALL_TEXT_BYTES_MAX: Final = 4_000_000
"""Total size of a schema with all direct and indirect references."""

REFERENCES_MAX: Final = 100
"""Number of direct and indirect references."""

Resolve = Callable[[Reference], SchemaText]
"""Returns the schema of a reference; raises InvalidSchema if it does not exist."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A validated schema: its type and its canonical text."""

    root: AvroType
    text: SchemaText


def parse(schema: SchemaText, resolve: Resolve, *, normalize: bool = False) -> AvroSchema:
    """Parse a schema and the schemas it references.

    `canonical_text` rewrites its text. The order of its references has no meaning; it is kept
    unless `normalize` is set.

    Raises:
        InvalidSchema: the text is not a schema; the message says why.
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
        text = _rewritten(written)
        self._show_fastavro(text)
        references = schema.references
        if normalize:
            references = tuple(sorted(set(references)))
        rewritten = SchemaText(text, references)
        _expect_small(rewritten)
        return AvroSchema(root, rewritten)

    def _read_reference(self, reference: Reference) -> None:
        schema = self._resolve(reference)
        if schema not in self._done:
            # Recorded before its own references: none of them can lead back to it.
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
                f" the referenced type {reference.name!r}."
            )

    def _written(self, schema: SchemaText) -> Any:
        self._count(schema.text)
        try:
            return json.loads(schema.text, parse_constant=_refuse_constant)
        except ValueError as error:
            raise InvalidSchema(f"The schema is not JSON: {error}.") from None

    def _count(self, text: str) -> None:
        # A character takes at most four bytes; lone surrogates, which cannot be encoded, are
        # rejected later.
        size = len(text.encode(errors="replace"))
        if size > TEXT_BYTES_MAX:
            raise InvalidSchema(f"schema too large: {size} bytes, max {TEXT_BYTES_MAX}")
        self._bytes += size
        if self._bytes > ALL_TEXT_BYTES_MAX:
            raise InvalidSchema(
                f"The schema and its references have more than {ALL_TEXT_BYTES_MAX} bytes."
            )

    def _show_fastavro(self, text: str) -> None:
        """Check that fastavro, which decodes the records, accepts the schema, too."""
        try:
            fastavro.parse_schema(json.loads(text), named_schemas=self._fastavro_names)
        except RecursionError:
            raise
        except Exception as error:
            # fastavro has no common exception for schemas that it cannot read.
            raise InvalidSchema(f"The schema cannot be read: {error}.") from error


def _rewritten(written: Any) -> str:
    try:
        return canonical_text(written)
    except ValueError as error:
        raise InvalidSchema(f"The schema cannot be written as JSON: {error}.") from None


def _expect_small(rewritten: SchemaText) -> None:
    """Check the size of the rewritten text: 1e15, for example, then has 18 characters."""
    references = [text for each in rewritten.references for text in (each.name, each.subject)]
    size = sum(len(each.encode()) for each in (rewritten.text, *references))
    if size > TEXT_BYTES_MAX:
        raise InvalidSchema(f"schema too large: {size} bytes, max {TEXT_BYTES_MAX}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
