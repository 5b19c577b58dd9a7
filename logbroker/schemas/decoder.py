"""Decode Avro values in Confluent's wire format to JSON.

A value is a zero byte, the schema id in four bytes, big-endian, and the Avro record.

Source: Confluent Schema Registry, "Formats, Serializers, and Deserializers", "Wire format".
"""

from io import BytesIO
from json import loads
from typing import Any, Final, Protocol

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from logbroker.schemas.avro.decoding_cost import EMPTY_FIELDS_MAX, WalkedBytes, cost_of
from logbroker.schemas.avro.json_values import JSON_BYTES_MAX, json_bytes
from logbroker.schemas.lookup import FoundSchema
from logbroker.schemas.reading_errors import UndecodableValue

FRAME_BYTES: Final = 5

VALUE_BYTES_MAX: Final = 2**20
"""Size of one value; decoding may take a hundred times this before the JSON limit is found
exceeded.
"""

_MAGIC: Final = b"\0"

_WRAPPER: Final = "RewindWrapper"
"""A record with a single field that holds the schema: every value is then decoded as a record."""

_UNREADABLE: Final = (
    *(SchemaParseException, UndecodableValue),
    *(ValueError, TypeError, LookupError, AttributeError, RecursionError),
)
"""Exceptions of parsing texts that are not schemas."""

_UNFIT: Final = (EOFError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError)
"""Exceptions of decoding bytes that do not match: end, UTF-8, branches, times, decimals."""


class SchemaSource(Protocol):
    """Returns schemas by id, as `SchemaLookup` does."""

    def schema(self, schema_id: int, read_s: float | None = None) -> FoundSchema:
        """Return the schema of an id; raises UndecodableValue, or SchemaRegistryUnavailable."""

    def is_settled(self, schema_id: int, read_s: float | None = None) -> bool:
        """Whether `schema` returns or raises without a request to a registry."""

    def close(self) -> None:
        """Close the connections."""


class AvroDecoder:
    """Decodes Avro values to JSON; thread-safe if its schema source is.

    The source is a registry (`SchemaLookup`), or schemas that were looked up before.
    """

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas
        # Keyed by the first five bytes of the values.
        self._readers: dict[bytes, _RecordDecoder] = {}

    def close(self) -> None:
        """Close the source of schemas."""
        self._schemas.close()

    @staticmethod
    def is_avro(value: bytes) -> bool:
        """Whether a value has the Avro frame; JSON never begins with a zero byte."""
        return value[:1] == _MAGIC and len(value) >= FRAME_BYTES

    def knows(self, value: bytes, read_s: float | None = None) -> bool:
        """Whether `to_json` returns or raises without a request to a registry."""
        frame = value[:FRAME_BYTES]
        return (
            frame in self._readers
            or not self.is_avro(value)
            or self._schemas.is_settled(int.from_bytes(frame[1:]), read_s)
        )

    def to_json(self, value: bytes, read_s: float | None = None) -> bytes:
        """Decode a value to a JSON object in UTF-8; equal input gives equal output.

        A caller that skips undecodable values passes in `read_s` when the value was read, by
        `time.monotonic`: the registry's earlier responses are then not used to reject the value.

        Raises:
            SchemaRegistryUnavailable: the schema cannot be looked up at present.
            UndecodableValue: the value can never be decoded.
        """
        reader = self._readers.get(value[:FRAME_BYTES]) or self._reader(value, read_s)
        return reader.to_json(value[FRAME_BYTES:])

    def _reader(self, value: bytes, read_s: float | None) -> "_RecordDecoder":
        if not self.is_avro(value):
            raise UndecodableValue("no Avro frame: a zero byte and a schema id")
        frame = value[:FRAME_BYTES]
        found = self._schemas.schema(int.from_bytes(frame[1:]), read_s)
        return self._readers.setdefault(frame, _reader_of(found))


class _RecordDecoder(Protocol):
    def to_json(self, record: bytes) -> bytes:
        """Decode the record to JSON."""


class _SchemaReader:
    """Decodes the records of one schema."""

    def __init__(self, found: FoundSchema) -> None:
        named: dict[str, Any] = {}
        for text in found.referenced:
            parse_schema(loads(text), named)
        schema = loads(found.text)
        self._is_wrapped = not (isinstance(schema, dict) and schema["type"] == "record")
        self._schema = parse_schema(_wrapped(schema) if self._is_wrapped else schema, named)
        self._cost = cost_of(self._schema, named)

    def to_json(self, record: bytes) -> bytes:
        """Decode the record to JSON.

        Raises:
            UndecodableValue: the value is too large, does not match the schema, or is not a record.
        """
        if len(record) > VALUE_BYTES_MAX:
            raise UndecodableValue(f"it is longer than {VALUE_BYTES_MAX} bytes")
        growth_max = self._growth_max(len(record))
        try:
            if self._cost.is_risky or growth_max > JSON_BYTES_MAX:
                self._walk(record)
            return json_bytes(self._read(record), growth_max=growth_max)
        except _UNFIT as error:
            raise UndecodableValue(f"does not match its schema: {error!r:.200}") from error

    def _walk(self, record: bytes) -> None:
        walked = WalkedBytes(record)
        # The wrapper is counted although it is not in the JSON.
        walked.json_left = JSON_BYTES_MAX + len(_WRAPPER)
        self._cost.walk(walked, 0, 0)

    def _read(self, record: bytes) -> dict[str, Any]:
        source = BytesIO(record)
        value: Any = schemaless_reader(source, self._schema, None)
        if source.tell() != len(record):
            raise UndecodableValue(f"{len(record) - source.tell()} bytes follow the record")
        if self._is_wrapped:
            value = value["value"]
        if not isinstance(value, dict):
            raise UndecodableValue(f"not a record, but {type(value).__name__}")
        return value

    def _growth_max(self, size: int) -> int:
        """Upper bound of the JSON size of `size` bytes, if each is a field of the longest name.

        A time or a number takes up to 26 characters, a character of a string up to 6.
        """
        return (size + EMPTY_FIELDS_MAX + 1) * (2 * self._cost.longest + 32)


class _NoReader:
    """Stands for a schema that cannot be used for decoding."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def to_json(self, _record: bytes) -> bytes:
        """Raise UndecodableValue, always."""
        raise UndecodableValue(f"its schema cannot be used: {self._reason}")


def _reader_of(found: FoundSchema) -> _RecordDecoder:
    try:
        return _SchemaReader(found)
    except _UNREADABLE as error:
        return _NoReader(f"{error!r:.200}")


def _wrapped(schema: Any) -> dict[str, Any]:
    return {"type": "record", "name": _WRAPPER, "fields": [{"name": "value", "type": schema}]}
