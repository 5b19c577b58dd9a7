"""Produce and Fetch requests, encoded once and sent many times, and the parsing of responses.

All requests of one kind have the same correlation id: a broker responds in order, so the generator
counts responses instead of matching them.

Source: Kafka protocol guide, "Produce API" version 9 and "Fetch API" version 12.
"""

import struct
from typing import Final, NamedTuple

from logbroker.records.record import NewRecord, encode_batch
from logbroker.wire.primitives import encode_count, encode_string, encode_uvarint

MESSAGE_BYTES: Final = 200
MESSAGE: Final = bytes(range(MESSAGE_BYTES))

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1

_PRODUCE: Final = 0
_FETCH: Final = 1
_PRODUCE_VERSION: Final = 9
_FETCH_VERSION: Final = 12
_CORRELATION_ID: Final = 7
_TIMEOUT_MS: Final = 30_000
_CLIENT_ID: Final = b"bench"
_NO_TAGS: Final = b"\0"
_NULL: Final = b"\0"
_EMPTY: Final = b"\1"
_LATEST_EPOCH: Final = -1
_UVARINT_MORE: Final = 0x80

_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhih")
_OUTCOME: Final = struct.Struct(">hq")
_OFFSET: Final = struct.Struct(">q")
_ERROR: Final = struct.Struct(">h")


class ErrorResponse(Exception):
    """The broker responded with an error code, or without records."""


def batch_of(records: int, timestamp_ms: int) -> bytes:
    """Return a batch of `records` messages of `MESSAGE_BYTES`, without keys."""
    return encode_batch([NewRecord(timestamp_ms, None, MESSAGE)] * records)


class ProduceFrame(NamedTuple):
    """A request that writes one batch to one partition."""

    frame: bytes
    records: int
    acks: int
    topic_bytes: int

    @property
    def response_bytes(self) -> int:
        """The size of the response if the batch is accepted."""
        # two more offsets; no record errors, no message; three tags; throttle time
        return self._outcome_at + _OUTCOME.size + 16 + 2 + 3 + 4

    @property
    def _outcome_at(self) -> int:
        # size, correlation id, tags; one topic, its name; one partition, its index
        return 4 + 4 + 1 + 1 + 1 + self.topic_bytes + 1 + 4

    def base_offset(self, response: bytes | memoryview) -> int:
        """Return the base offset of the written batch.

        Raises:
            ErrorResponse: the broker rejected the batch.
        """
        code, offset = _OUTCOME.unpack_from(response, self._outcome_at)
        if code:
            raise ErrorResponse(f"Produce returned error {code}")
        return int(offset)


def encode_produce(
    topic: str, batch: bytes, records: int, acks: int, partition: int = 0
) -> ProduceFrame:
    """Return the request that sends `batch`, which has `records` records."""
    body = b"".join(
        (
            _NULL,  # transactional id
            struct.pack(">hi", acks, _TIMEOUT_MS),
            encode_count(1, flexible=True),
            encode_string(topic, flexible=True),
            encode_count(1, flexible=True),
            struct.pack(">i", partition),
            encode_uvarint(len(batch) + 1),
            batch,
            _NO_TAGS * 3,
        )
    )
    frame = _framed(_PRODUCE, _PRODUCE_VERSION, body)
    return ProduceFrame(frame, records, acks, len(topic.encode()))


class FetchResponse(NamedTuple):
    """The position and the size of the records in a response."""

    records_at: int
    records_bytes: int

    def first_offset(self, response: memoryview) -> int:
        """Return the base offset of the first batch."""
        return int(_OFFSET.unpack_from(response, self.records_at)[0])


class FetchFrames:
    """Requests for one partition that differ only in the offset, and their responses."""

    def __init__(self, topic: str, partition: int, bytes_max: int) -> None:
        """Request up to `bytes_max` bytes; the broker responds at once if it has fewer."""
        name = encode_string(topic, flexible=True)
        head = struct.pack(">iiiibii", -1, 500, 1, bytes_max, 0, 0, -1)
        one = encode_count(1, flexible=True)
        place = struct.pack(">ii", partition, _LATEST_EPOCH)
        rest = struct.pack(">iqi", _LATEST_EPOCH, -1, bytes_max) + _NO_TAGS * 2
        tail = _EMPTY + _EMPTY + _NO_TAGS  # nothing forgotten, no rack
        before = head + one + name + one + place
        frame = _framed(_FETCH, _FETCH_VERSION, before + _OFFSET.pack(0) + rest + tail)
        self._frame = bytearray(frame)
        self._offset_at = len(frame) - len(tail) - len(rest) - _OFFSET.size
        # size, correlation id, tags; throttle time, error, session; one topic; one partition
        self._error_at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + len(name) + 1 + 4
        # error, three offsets, no aborted transactions, preferred replica
        self._length_at = self._error_at + 2 + 24 + 1 + 4

    def encode_request(self, offset: int) -> bytes:
        """Return the request that starts at `offset`."""
        _OFFSET.pack_into(self._frame, self._offset_at, offset)
        return bytes(self._frame)

    def find_records(self, response: memoryview) -> FetchResponse:
        """Find the records in a complete response, which includes the size prefix.

        Raises:
            ErrorResponse: the response has none, or an error code.
        """
        (code,) = _ERROR.unpack_from(response, self._error_at)
        if code:
            raise ErrorResponse(f"Fetch returned error {code}")
        length, position = _read_uvarint(response, self._length_at)
        if length < 2:
            raise ErrorResponse("Fetch returned no records")
        return FetchResponse(position, length - 1)


def _framed(api_key: int, version: int, body: bytes) -> bytes:
    head = _HEAD.pack(api_key, version, _CORRELATION_ID, len(_CLIENT_ID)) + _CLIENT_ID + _NO_TAGS
    return _SIZE.pack(len(head) + len(body)) + head + body


def _read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & ~_UVARINT_MORE) << shift
        if byte < _UVARINT_MORE:
            return value, position
        shift += 7
