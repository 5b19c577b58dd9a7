"""Values in Avro as JSON, in tasks that ask nobody: the driver has looked their schemas up."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from logbroker.errors import ConfigurationError
from logbroker.schemas.decoder import AvroDecoder
from logbroker.schemas.lookup import FoundSchema, SchemaLookup
from logbroker.schemas.reading_errors import RegistryUnavailable, UndecodableValue
from spark_jobs.errors import InvalidOption, SourceFailed, UndecodableRecord


class NoSchema(NamedTuple):
    """Why there is no schema of an id to read with."""

    reason: str


SCHEMAS_MAX: Final = 10_000
"""Ids that a run asks for, the lowest first: values full of garbage name a new one each."""

_ONE_TOO_MANY: Final = NoSchema(f"its schema's id is above the lowest {SCHEMAS_MAX} of this run")


class KnownSchemas:
    """The schemas of a run, by their ids; an `AvroDecoder` reads with them."""

    def __init__(self, schemas: Mapping[int, FoundSchema | NoSchema]) -> None:
        self._schemas = schemas

    def schema(
        self,
        schema_id: int,
        read_s: float | None = None,  # noqa: ARG002  of the protocol
    ) -> FoundSchema:
        """The schema of an id.

        Raises:
            UndecodableValue: there is none.
        """
        found = self._schemas.get(schema_id, _ONE_TOO_MANY)
        if isinstance(found, NoSchema):
            raise UndecodableValue(found.reason)
        return found

    def is_settled(
        self,
        schema_id: int,  # noqa: ARG002  of the protocol
        read_s: float | None = None,  # noqa: ARG002
    ) -> bool:
        """There is nobody to ask."""
        return True

    def close(self) -> None:
        """There is nothing to let go of."""


def look_up(registry_url: str, schema_ids: Iterable[int]) -> dict[int, FoundSchema | NoSchema]:
    """Ask a registry for each schema once.

    Raises:
        InvalidOption: the URL is none.
        SourceFailed: the registry does not answer.
    """
    try:
        lookup = SchemaLookup(registry_url)
    except ConfigurationError as error:
        raise InvalidOption(str(error)) from error
    try:
        return {each: _found(lookup, each) for each in sorted(schema_ids)}
    finally:
        lookup.close()


def _found(lookup: SchemaLookup, schema_id: int) -> FoundSchema | NoSchema:
    try:
        return lookup.schema(schema_id)
    except UndecodableValue as error:
        return NoSchema(str(error))
    except RegistryUnavailable as error:
        raise SourceFailed(f"schema {schema_id} cannot be looked up: {error}") from error


class JsonValues:
    """Makes JSON of the values of records; tasks are given one, which they may call at once."""

    def __init__(self, schemas: Mapping[int, FoundSchema | NoSchema]) -> None:
        self._schemas = schemas

    @cached_property
    def _decoder(self) -> AvroDecoder:
        return AvroDecoder(KnownSchemas(self._schemas))

    def __call__(
        self, key: bytes | None, value: bytes | None, schema_id: int | None
    ) -> tuple[bytes | None, int | None, str | None]:
        """Key, schema id, and the value as JSON; raises UndecodableRecord."""
        return key, schema_id, None if value is None else self._json(value, schema_id)

    def _json(self, value: bytes, schema_id: int | None) -> str:
        """The value as a JSON object.

        Raises:
            UndecodableRecord: it is neither Avro nor JSON, or does not fit its schema.
        """
        if schema_id is None:
            return _json_object(value)
        try:
            return self._decoder.to_json(value).decode()
        except UndecodableValue as error:
            raise UndecodableRecord(f"schema {schema_id}: {error}") from error


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number in JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_refuse_constant)
"""As others read JSON: Python takes NaN and Infinity, too."""


def _json_object(value: bytes) -> str:
    try:
        text = value.decode()
        document = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"it is neither Avro nor JSON: {error}") from error
    if not isinstance(document, dict):
        raise UndecodableRecord("it is JSON, but no object")
    return text
