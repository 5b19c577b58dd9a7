"""Convert Avro values to JSON; equal values give the same text.

A union shows the value without its branch. Bytes and fixed become base64, decimals text without an
exponent, times RFC 3339 (local times without an offset), UUIDs text. NaN and the infinities become
"NaN", "Infinity" and "-Infinity", as in the JSON mapping of Protocol Buffers.
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
"""Limit of one value: four times the log's default limit of a message."""

_SMALL_EXPONENT: Final = 1_000
"""Decimals with more fractional digits are written with an exponent."""


def json_bytes(value: dict[str, Any], *, growth_max: int) -> bytes:
    """Encode a record as fastavro reads it, in UTF-8 without blanks.

    `growth_max` is an upper bound of the size that the caller knows; below the limit no bytes are
    counted.

    Raises:
        UndecodableValue: the JSON exceeds `JSON_BYTES_MAX`.
        ValueError, RecursionError: the record contains a value without a JSON form.
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
    """Replace the numbers that JSON lacks by texts."""
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
    # A value that was decoded from bytes cannot contain itself.
    check_circular=False,
    allow_nan=False,
    separators=(",", ":"),
    default=_plain,
)
