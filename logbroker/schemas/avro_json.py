"""What Avro values become in JSON: one text for one value, whoever decodes it.

Unions show the value alone. Bytes and fixed are base64, decimals text without an exponent, times
RFC 3339 (local ones without an offset), UUIDs text, and the numbers that JSON does not have the
texts "NaN", "Infinity" and "-Infinity", as in the JSON of Protocol Buffers.
"""

import json
import math
from base64 import b64encode
from collections.abc import Callable, Iterable
from datetime import date, datetime
from datetime import time as time_of_day
from decimal import Decimal
from json import JSONEncoder
from typing import Any, Final
from uuid import UUID

from logbroker.schemas.reading_errors import UndecodableValue

JSON_BYTES_MAX: Final = 4 * 2**20
"""Of one value: four times what a log takes by default."""

_SMALL_EXPONENT: Final = 1_000
"""Decimals of more digits behind the point are written with an exponent."""


def json_bytes(value: dict[str, Any], *, growth_max: int) -> bytes:
    """The JSON of a record as fastavro reads it, in UTF-8 and without blanks.

    `growth_max` is how many bytes it may have at most, as far as the caller knows: below the limit
    nobody has to count.

    Raises:
        UndecodableValue: it is longer than `JSON_BYTES_MAX`.
        ValueError, RecursionError: it holds what has no JSON.
    """
    encode = _encoded if growth_max <= JSON_BYTES_MAX else _counted
    try:
        return encode(value)
    except ValueError:
        return encode(_finite(value))


def _encoded(value: dict[str, Any]) -> bytes:
    return _ENCODER.encode(value).encode()


def _counted(value: dict[str, Any]) -> bytes:
    return b"".join(_bounded(_ENCODER.iterencode(value)))


def _bounded(pieces: Iterable[str]) -> Iterable[bytes]:
    size = 0
    for piece in pieces:
        encoded = piece.encode()
        size += len(encoded)
        if size > JSON_BYTES_MAX:
            raise UndecodableValue(f"it is longer than {JSON_BYTES_MAX} bytes as JSON")
        yield encoded


def _finite(value: Any) -> Any:
    """The same with texts for the numbers that JSON does not have."""
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value


def _moment(value: datetime) -> str:
    precision = "microseconds" if value.microsecond % 1_000 else "milliseconds"
    return value.isoformat(timespec=precision).replace("+00:00", "Z")


def _decimal(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    is_short = isinstance(exponent, int) and abs(exponent) <= _SMALL_EXPONENT
    return format(value, "f") if is_short else str(value)


def _plain(value: object) -> str:
    convert = _CONVERSIONS.get(type(value))
    if convert is None:
        raise TypeError(f"{type(value).__name__} has no JSON")
    return convert(value)


_CONVERSIONS: Final[dict[type, Callable[[Any], str]]] = {
    bytes: lambda value: b64encode(value).decode(),
    datetime: _moment,
    date: date.isoformat,
    time_of_day: time_of_day.isoformat,
    Decimal: _decimal,
    UUID: str,
}

_ENCODER: Final = JSONEncoder(
    ensure_ascii=False,
    # What was read from bytes cannot contain itself.
    check_circular=False,
    allow_nan=False,
    separators=(",", ":"),
    default=_plain,
)
