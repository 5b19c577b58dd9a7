"""Values in Avro, as Confluent's serializers frame them, turned into JSON.

A value is a zero byte, the schema's id in four bytes, big-endian, and the record in Avro.

Source: Confluent Schema Registry, "Formats, Serializers, and Deserializers", "Wire format".
"""

from io import BytesIO
from json import loads
from typing import Any, Final, Protocol

from fastavro import parse_schema, schemaless_reader
from fastavro.schema import SchemaParseException

from logbroker.schemas.avro_json import JSON_BYTES_MAX, json_bytes
from logbroker.schemas.avro_walk import EMPTY_FIELDS_MAX, WalkedBytes, cost_of
from logbroker.schemas.lookup import FoundSchema
from logbroker.schemas.reading_errors import UndecodableValue

FRAME_BYTES: Final = 5

VALUE_BYTES_MAX: Final = 2**20
"""Of one value; read, and before it is known to be too long as JSON, a byte may take a hundred."""

_MAGIC: Final = b"\0"

_WRAPPER: Final = "RewindWrapper"
"""The only field of a record takes the record's place, so what is none is read as one."""

_UNREADABLE: Final = (
    *(SchemaParseException, UndecodableValue),
    *(ValueError, TypeError, LookupError, AttributeError, RecursionError),
)
"""What parsing raises for texts that are no schemas."""

_UNFIT: Final = (EOFError, ValueError, LookupError, ArithmeticError, TypeError, RecursionError)
"""What reading raises for bytes that do not fit: the end, UTF-8, branches, times, decimals."""


class SchemaSource(Protocol):
    """Has schemas by their ids: see `SchemaLookup`, whose words these are."""

    def schema(self, schema_id: int, read_s: float | None = None) -> FoundSchema:
        """The schema of an id; raises UndecodableValue, or RegistryUnavailable."""

    def is_settled(self, schema_id: int, read_s: float | None = None) -> bool:
        """Whether `schema` answers, or refuses, without asking anybody."""

    def close(self) -> None:
        """Let go of what it asks with."""


class AvroDecoder:
    """Turns values in Avro into JSON; safe for threads where its schemas are.

    They are those of a registry (`SchemaLookup`), or such as somebody has asked for before.
    """

    def __init__(self, schemas: SchemaSource) -> None:
        self._schemas = schemas
        # By the first five bytes of the values.
        self._readers: dict[bytes, _Reader] = {}

    def close(self) -> None:
        """Close the source of schemas."""
        self._schemas.close()

    @staticmethod
    def is_avro(value: bytes) -> bool:
        """Whether a value is framed as Avro: JSON begins with no zero byte."""
        return value[:1] == _MAGIC and len(value) >= FRAME_BYTES

    def knows(self, value: bytes, read_s: float | None = None) -> bool:
        """Whether `to_json` will answer, or refuse, without asking a registry."""
        frame = value[:FRAME_BYTES]
        return (
            frame in self._readers
            or not self.is_avro(value)
            or self._schemas.is_settled(int.from_bytes(frame[1:]), read_s)
        )

    def to_json(self, value: bytes, read_s: float | None = None) -> bytes:
        """The value as a JSON object in UTF-8: the same bytes give the same bytes.

        Whoever passes over what is refused tells with `read_s` when the value was read, as
        `time.monotonic` counts: then no answer of the registry from before is a reason.

        Raises:
            RegistryUnavailable: which schema it is cannot be asked at present.
            UndecodableValue: it will never be readable.
        """
        reader = self._readers.get(value[:FRAME_BYTES]) or self._reader(value, read_s)
        return reader.to_json(value[FRAME_BYTES:])

    def _reader(self, value: bytes, read_s: float | None) -> "_Reader":
        if not self.is_avro(value):
            raise UndecodableValue("it is not framed as Avro: a zero byte and a schema id")
        frame = value[:FRAME_BYTES]
        found = self._schemas.schema(int.from_bytes(frame[1:]), read_s)
        return self._readers.setdefault(frame, _reader_of(found))


class _Reader(Protocol):
    def to_json(self, record: bytes) -> bytes:
        """The record as JSON."""


class _SchemaReader:
    """Reads the records of one schema."""

    def __init__(self, found: FoundSchema) -> None:
        named: dict[str, Any] = {}
        for text in found.referenced:
            parse_schema(loads(text), named)
        schema = loads(found.text)
        self._is_wrapped = not (isinstance(schema, dict) and schema["type"] == "record")
        self._schema = parse_schema(_wrapped(schema) if self._is_wrapped else schema, named)
        self._cost = cost_of(self._schema, named)

    def to_json(self, record: bytes) -> bytes:
        """The record as JSON.

        Raises:
            UndecodableValue: it is too large, does not fit the schema, or is no record.
        """
        if len(record) > VALUE_BYTES_MAX:
            raise UndecodableValue(f"it is longer than {VALUE_BYTES_MAX} bytes")
        growth_max = self._growth_max(len(record))
        try:
            if self._cost.is_risky or growth_max > JSON_BYTES_MAX:
                self._walk(record)
            return json_bytes(self._read(record), growth_max=growth_max)
        except _UNFIT as error:
            raise UndecodableValue(f"it does not fit its schema: {error!r:.200}") from error

    def _walk(self, record: bytes) -> None:
        walked = WalkedBytes(record)
        # The wrapper is counted, and will not be in the JSON.
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
            raise UndecodableValue(f"it is no record, but {type(value).__name__}")
        return value

    def _growth_max(self, size: int) -> int:
        """How long the JSON of so many bytes can get: each a field of the longest name.

        A time or a number takes up to 26 characters, and a character of a string up to 6.
        """
        return (size + EMPTY_FIELDS_MAX + 1) * (2 * self._cost.longest + 32)


class _NoReader:
    """Stands for a schema that cannot be read with."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def to_json(self, _record: bytes) -> bytes:
        """Raises UndecodableValue, always."""
        raise UndecodableValue(f"its schema cannot be read with: {self._reason}")


def _reader_of(found: FoundSchema) -> _Reader:
    try:
        return _SchemaReader(found)
    except _UNREADABLE as error:
        return _NoReader(f"{error!r:.200}")


def _wrapped(schema: Any) -> dict[str, Any]:
    return {"type": "record", "name": _WRAPPER, "fields": [{"name": "value", "type": schema}]}
