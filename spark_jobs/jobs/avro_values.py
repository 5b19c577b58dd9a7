"""Converts Avro values to JSON in tasks, with schemas that the driver has looked up."""

import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, NamedTuple

from logbroker.errors import ConfigurationError
from logbroker.schemas.decoder import AvroDecoder
from logbroker.schemas.lookup import FoundSchema, SchemaLookup
from logbroker.schemas.reading_errors import SchemaRegistryUnavailable, UndecodableValue
from spark_jobs.errors import InvalidOption, SourceFailed, UndecodableRecord


class MissingSchema(NamedTuple):
    """Why the schema of an id is not available."""

    reason: str


SCHEMAS_MAX: Final = 10_000
"""Maximum of schema ids looked up in a run, the lowest first: corrupt values may have any id."""

_NOT_LOOKED_UP: Final = MissingSchema(
    f"not looked up: the run has more than {SCHEMAS_MAX} schema ids"
)


class KnownSchemas:
    """The schemas of a run by id, as the lookup of an `AvroDecoder`."""

    def __init__(self, schemas: Mapping[int, FoundSchema | MissingSchema]) -> None:
        self._schemas = schemas

    def schema(
        self,
        schema_id: int,
        read_s: float | None = None,  # noqa: ARG002  part of the protocol
    ) -> FoundSchema:
        """The schema of an id.

        Raises:
            UndecodableValue: the schema is not available.
        """
        found = self._schemas.get(schema_id, _NOT_LOOKED_UP)
        if isinstance(found, MissingSchema):
            raise UndecodableValue(found.reason)
        return found

    def is_settled(
        self,
        schema_id: int,  # noqa: ARG002  part of the protocol
        read_s: float | None = None,  # noqa: ARG002
    ) -> bool:
        """True: every lookup has been made."""
        return True

    def close(self) -> None:
        """Nothing to close."""


def look_up_schemas(
    registry_url: str, schema_ids: Iterable[int]
) -> dict[int, FoundSchema | MissingSchema]:
    """Look up each schema once in the registry.

    Raises:
        InvalidOption: the URL is malformed.
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


def _found(lookup: SchemaLookup, schema_id: int) -> FoundSchema | MissingSchema:
    try:
        return lookup.schema(schema_id)
    except UndecodableValue as error:
        return MissingSchema(str(error))
    except SchemaRegistryUnavailable as error:
        raise SourceFailed(f"schema {schema_id} cannot be looked up: {error}") from error


class JsonConverter:
    """Converts the values of records to JSON; a callable that is sent to tasks."""

    def __init__(self, schemas: Mapping[int, FoundSchema | MissingSchema]) -> None:
        self._schemas = schemas

    @cached_property
    def _decoder(self) -> AvroDecoder:
        return AvroDecoder(KnownSchemas(self._schemas))

    def __call__(
        self,
        key: bytes | None,
        value: bytes | None,
        schema_id: int | None,
        account_id: bytes | None,
    ) -> tuple[bytes | None, int | None, str | None, str | None]:
        """Key, schema id, the value as JSON, and the account; raises UndecodableRecord."""
        text = None if value is None else self._json(value, schema_id)
        account = None if account_id is None else account_id.decode("utf-8", "replace")
        return key, schema_id, text, account

    def _json(self, value: bytes, schema_id: int | None) -> str:
        """The value as a JSON object.

        Raises:
            UndecodableRecord: it is neither Avro nor JSON, or does not match its schema.
        """
        if schema_id is None:
            return _json_object(value)
        try:
            return self._decoder.to_json(value).decode()
        except UndecodableValue as error:
            raise UndecodableRecord(f"schema {schema_id}: {error}") from error


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid in JSON")


_JSON: Final = json.JSONDecoder(parse_constant=_reject_constant)
"""A strict decoder: Python's default accepts NaN and Infinity."""


def _json_object(value: bytes) -> str:
    try:
        text = value.decode()
        document = _JSON.decode(text)
    except (ValueError, RecursionError) as error:
        raise UndecodableRecord(f"neither Avro nor JSON: {error}") from error
    if not isinstance(document, dict):
        raise UndecodableRecord("not a JSON object")
    return text
