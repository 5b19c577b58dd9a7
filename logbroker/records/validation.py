"""Validates the records of a batch without decoding them: framing, offsets, keys and timestamps.

This loop is the largest cost of Produce. The broker uses the form that mypyc compiled, if there
is one, and this text otherwise; `logbroker.records.validator` chooses. So the module imports only
the errors that it raises, and every local number is an `i64`. Both forms return and raise the same.

Source: Kafka, `LogValidator.java` and `DefaultRecord.readFrom`; the layout of a record is in
`logbroker.records.record`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logbroker.errors import InvalidRecord, InvalidTimestamp, LargeBatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_extensions import i64

INT64_MAX: Final = 9223372036854775807
INT64_MIN: Final = -9223372036854775808
NO_TIMESTAMP: Final = -1

NULL: Final = -1
"""The length of a key or value that is null."""

RECORD_BYTES_MIN: Final = 7
"""Each of the seven fields of a record takes at least one byte."""

RECORD_ERRORS_MAX: Final = 1000
"""Invalid records that are listed; a batch may have a hundred thousand of them."""

WINDOW_BYTES: Final = 65536
"""Large batches are copied in such parts, which stay in the processor's cache until they are read.

The records of a part take at most 0.2 ms in compiled code, during which no other thread runs.
"""

PAUSED_BYTES: Final = 8192
"""The size of such parts if `pause` is called between them: 1.5 ms in pure form at most."""

PAUSED_HEADERS: Final = 4096
"""Headers of one record that are read between two calls of `pause`."""

HEADERS_UNLIMITED: Final = 2147483647

LENGTH_BYTES_MAX: Final = 5


def validate_records(  # noqa: C901  # as functions, the pure form takes twice the time
    source: memoryview,
    start: i64,
    count: i64,
    base_timestamp: i64,
    timestamp_min: i64,
    timestamp_max: i64,
    key_required: bool,
    headers_max: i64 = HEADERS_UNLIMITED,
    pause: Callable[[], object] | None = None,
) -> int:
    """Return the largest timestamp of the `count` records in `source[start:]`; -1 if none has one.

    The records are not compressed. Timestamps are in milliseconds since 1970; a record without
    one (-1) is in every range. `pause` is called between parts of large batches: compiled code
    lets no other thread run, but a function of Python does.

    Raises:
        LargeBatch: the records have more than `headers_max` headers.
        InvalidRecord: the bytes are not exactly `count` records with the offset deltas 0, 1, 2 ...,
            or `key_required` and a record has no key.
        InvalidTimestamp: a timestamp is not between `timestamp_min` and `timestamp_max`.
    """
    source_size: i64 = len(source)
    if count * RECORD_BYTES_MIN > source_size - start:
        raise InvalidRecord(
            f"recordsCount is {count}, which takes at least {count * RECORD_BYTES_MIN} bytes; "
            f"the records have {source_size - start}"
        )
    errors: _Errors | None = None
    largest: i64 = NO_TIMESTAMP
    index: i64 = 0
    # Locals, since mypyc converts a constant of more than 62 bits at each use.
    int64_max: i64 = INT64_MAX
    int64_min: i64 = INT64_MIN
    window_end: i64 = start
    size: i64 = 0
    position: i64 = 0
    window: i64 = WINDOW_BYTES if pause is None else PAUSED_BYTES
    needed: i64 = window
    headers: i64
    headers_left: i64 = headers_max
    data = b""
    if source_size <= window:
        data = source.tobytes()
        size = window_end = source_size
        position = start
    byte: i64
    more: i64
    length: i64
    try:
        while index < count:
            if position + needed > size and window_end < source_size:
                # The record is not in this part of the source, or may not be.
                start = window_end - size + position
                window_end = min(start + max(needed, window), source_size)
                data = bytes(source[start:window_end])
                size = window_end - start
                position = 0
                if pause is not None:
                    pause()
            needed = LENGTH_BYTES_MAX
            record: i64 = position
            byte = data[position]
            position += 1
            if byte >= 0x80:
                more = data[position]
                if more < 0x80:
                    byte += (more << 7) - 0x80
                    position += 1
                else:
                    byte, position = _read_long(data, position, byte, 28)
            length = (byte >> 1) ^ -(byte & 1)
            record_end: i64 = position + length
            if length < 0 or record_end > size:
                if length > 0 and window_end < source_size:
                    needed = record_end - record
                    position = record
                    continue
                raise _malformed(index, f"its length is {length}; {size - position} bytes follow")
            # The attributes of a record are unused.
            position += 1
            byte = data[position]
            position += 1
            if byte >= 0x80:
                byte, position = _read_long(data, position, byte, 63)
            delta: i64 = ((byte >> 1) & int64_max) ^ -(byte & 1)
            byte = data[position]
            position += 1
            if byte >= 0x80:
                more = data[position]
                if more < 0x80:
                    byte += (more << 7) - 0x80
                    position += 1
                else:
                    byte, position = _read_long(data, position, byte, 28)
            offset_delta: i64 = (byte >> 1) ^ -(byte & 1)
            byte = data[position]
            position += 1
            if byte >= 0x80:
                byte, position = _read_long(data, position, byte, 28)
            key_length: i64 = (byte >> 1) ^ -(byte & 1)
            if key_length > 0:
                position += key_length
            byte = data[position]
            position += 1
            if byte >= 0x80:
                more = data[position]
                if more < 0x80:
                    byte += (more << 7) - 0x80
                    position += 1
                else:
                    byte, position = _read_long(data, position, byte, 28)
            length = (byte >> 1) ^ -(byte & 1)
            if length > 0:
                position += length
            elif length < NULL:
                raise _malformed(index, f"its value has length {length}")
            byte = data[position]
            position += 1
            if byte:
                if byte >= 0x80:
                    byte, position = _read_long(data, position, byte, 28)
                headers = (byte >> 1) ^ -(byte & 1)
                headers_left -= headers
                if headers_left < 0:
                    raise LargeBatch(f"the records have more than {headers_max} headers")
                while pause is not None and headers > PAUSED_HEADERS:
                    position = _skip_headers(data, position, PAUSED_HEADERS, index)
                    headers -= PAUSED_HEADERS
                    pause()
                position = _skip_headers(data, position, headers, index)
            if position != record_end:
                raise _malformed(index, f"its fields end {position - record_end} bytes after it")

            if (delta > 0 and base_timestamp > int64_max - delta) or (
                delta < 0 and base_timestamp < int64_min - delta
            ):
                raise _malformed(index, f"timestamp delta {delta} exceeds 64 bits")
            timestamp: i64 = base_timestamp + delta
            if timestamp > largest:
                largest = timestamp
            if (
                timestamp > timestamp_max or timestamp < timestamp_min
            ) and timestamp != NO_TIMESTAMP:
                errors = errors or _Errors()
                errors.add_timestamp(index, timestamp, timestamp_min, timestamp_max)
            if offset_delta != index:
                errors = errors or _Errors()
                errors.add(index, f"its offset delta is {offset_delta}; expected: {index}")
            elif key_length < 0:
                if key_length < NULL:
                    raise _malformed(index, f"its key has length {key_length}")
                if key_required:
                    errors = errors or _Errors()
                    errors.add(index, "a compacted topic accepts no record without a key")
            index += 1
    except IndexError:
        raise _malformed(index, "it is cut off") from None
    left: i64 = source_size - window_end + size - position
    if left:
        raise InvalidRecord(f"{left} bytes follow the {count} records of the batch")
    if errors is not None:
        raise errors.error(count)
    return largest


class _Errors:
    """The invalid records of a batch that is well-formed."""

    def __init__(self) -> None:
        self.first: list[tuple[int, str]] = []
        self.count = 0
        self.timestamps = 0

    def add(self, index: int, why: str) -> None:
        """Add the record at `index`."""
        self.count += 1
        if self.count <= RECORD_ERRORS_MAX:
            self.first.append((index, why))

    def add_timestamp(self, index: int, timestamp: int, lowest: int, highest: int) -> None:
        """Add a record whose timestamp is out of range."""
        self.timestamps += 1
        self.add(index, f"its timestamp is {timestamp}; allowed: {lowest} to {highest}")

    def error(self, count: int) -> InvalidRecord | InvalidTimestamp:
        """Return the error of a batch of `count` records."""
        index, why = self.first[0]
        message = f"{self.count} of {count} records are invalid; record {index}: {why}"
        if self.timestamps:
            return InvalidTimestamp(message, self.first)
        return InvalidRecord(message, self.first)


def _read_long(data: bytes, position: i64, byte: i64, shift_max: i64) -> tuple[i64, i64]:
    """Return the varint that began with `byte` before `position`, and the position after it.

    The number is not zig-zag decoded. `shift_max` is the shift of the last byte that it may have:
    28 for 32 bits, 63 for 64 bits.
    """
    folded: i64 = byte & 0x7F
    shift: i64 = 0
    while byte >= 0x80:
        shift += 7
        if shift > shift_max:
            raise InvalidRecord(f"the varint before byte {position} of the records is too long")
        byte = data[position]
        position += 1
        folded |= (byte & 0x7F) << shift
    if (shift == 28 and shift_max == 28 and byte > 0x0F) or (shift == 63 and byte > 1):
        raise InvalidRecord(f"the varint before byte {position} of the records is too large")
    return folded, position


def _skip_headers(data: bytes, position: i64, headers: i64, index: i64) -> i64:
    """Return the position after `headers` headers."""
    byte: i64
    length: i64
    if headers < 0:
        raise _malformed(index, f"it has {headers} headers")
    while headers > 0:
        headers -= 1
        byte = data[position]
        position += 1
        if byte >= 0x80:
            byte, position = _read_long(data, position, byte, 28)
        length = (byte >> 1) ^ -(byte & 1)
        if length < 0:
            raise _malformed(index, f"it has a header whose key has length {length}")
        position += length
        byte = data[position]
        position += 1
        if byte >= 0x80:
            byte, position = _read_long(data, position, byte, 28)
        length = (byte >> 1) ^ -(byte & 1)
        if length < NULL:
            raise _malformed(index, f"it has a header whose value has length {length}")
        if length > 0:
            position += length
    return position


def _malformed(index: int, why: str) -> InvalidRecord:
    return InvalidRecord(f"record {index} is malformed: {why}", [(index, why)])
