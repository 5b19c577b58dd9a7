"""A partition of `delivery_log` with a given amount of history around one window.

The records of the window are encoded once; each batch then gets its own event ids. The history
around the window is one batch that is written repeatedly with later timestamps, since no replay
reads it. Batches are compressed with snappy, as in the service. The keys are those of many webhooks
of the partition, including the replayed one. The records per hour are constant, so that logs of
different lengths differ in nothing else.
"""

import socket
import struct
import time
from base64 import b64encode
from collections.abc import Iterator
from random import Random
from typing import Final, NamedTuple

from crc32c import crc32c

from app.domain.model import Window
from app.log.topics import DELIVERY_LOG
from benchmarks.frames import ACKS_LEADER, encode_produce
from benchmarks.produce_load import Address
from logbroker.client.partitioner import partition_for_key
from logbroker.records.batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    read_header,
)
from logbroker.records.compression import Codec, compress
from logbroker.records.record import NewRecord, encode_batch

STRETCH_RECORDS: Final = 500
WINDOW_BATCH_RECORDS: Final = 600
"""A multiple of every share: all batches of the window have the same keys."""

WEBHOOKS: Final = 40
SHARE: Final = 3
"""One of this many records belongs to the replayed webhook, by default."""

STEP_MS: Final = 38
"""The default distance of records: ten million cover four and a half days of history."""

BEHIND_NOW_MS: Final = 60_000
BODY_BYTES: Final = 200

_OLD_ID: Final = b"old_%010d"
_ID_IN_BATCH: Final = b"evt_-batch-%03d"
_BATCH_MARK: Final = b"-batch-"
_BATCH_NUMBER: Final = b"%07d"
"""Replaces the mark, and has the same length."""

_TEXT: Final = b64encode(Random(2011).randbytes(WINDOW_BATCH_RECORDS * BODY_BYTES))
"""The text of events; each shares half of it with the one before, to compress like real text."""

_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_TIMES: Final = struct.Struct(">qq")
_TIMES_AT: Final = 27


class History(NamedTuple):
    """The records of one partition, with the window in the middle."""

    webhook_id: str
    partitions: int
    records: int
    window_records: int
    start_ms: int
    share: int
    step_ms: int

    @classmethod
    def until_now(
        cls,
        webhook_id: str,
        partitions: int,
        records: int,
        events: int,
        share: int = SHARE,
        step_ms: int = STEP_MS,
    ) -> "History":
        """Return a history of `records` up to now, with `events` of the webhook in its window."""
        assert WINDOW_BATCH_RECORDS % share == 0, share
        now_ms = time.time_ns() // 1_000_000
        start_ms = now_ms - BEHIND_NOW_MS - records * step_ms
        return cls(webhook_id, partitions, records, events * share, start_ms, share, step_ms)

    @property
    def partition(self) -> int:
        """The partition of all keys."""
        return partition_for_key(self.webhook_id.encode(), self.partitions)

    @property
    def events(self) -> int:
        """The number of records of the window that belong to the webhook."""
        return self.window_records // self.share

    def window_of(self, events: int) -> Window:
        """Return the window of the webhook's first `events` events."""
        end = self._before + events * self.share
        return Window(self._time_of(self._before), self._time_of(end))

    @property
    def _before(self) -> int:
        return (self.records - self.window_records) // 2

    def _time_of(self, number: int) -> int:
        return self.start_ms + number * self.step_ms

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """Yield every batch with the number of its records, in order."""
        keys = self._keys()
        old = _compressed(self._batch(STRETCH_RECORDS, keys, _OLD_ID))
        end = self._before + self.window_records
        yield from self._repeated(old, 0, self._before)
        yield from self._window(keys, self._before, end)
        yield from self._repeated(old, end, self.records)

    def _repeated(self, stretch: bytearray, start: int, end: int) -> Iterator[tuple[bytes, int]]:
        assert (end - start) % STRETCH_RECORDS == 0, (start, end)
        for number in range(start, end, STRETCH_RECORDS):
            yield self._moved(stretch, number, STRETCH_RECORDS), STRETCH_RECORDS

    def _window(self, keys: list[bytes], start: int, end: int) -> Iterator[tuple[bytes, int]]:
        encoded: dict[int, bytes] = {}
        for place, number in enumerate(range(start, end, WINDOW_BATCH_RECORDS)):
            records = min(WINDOW_BATCH_RECORDS, end - number)
            if records not in encoded:
                encoded[records] = self._batch(records, keys, _ID_IN_BATCH)
            batch = encoded[records].replace(_BATCH_MARK, _BATCH_NUMBER % place)
            yield self._moved(_compressed(batch), number, records), records

    def _moved(self, batch: bytearray, number: int, records: int) -> bytes:
        """Return a batch with the times of the records from `number` on."""
        first_ms, last_ms = self._time_of(number), self._time_of(number + records - 1)
        _TIMES.pack_into(batch, _TIMES_AT, first_ms, last_ms)
        _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[CRC_START:]))
        return bytes(batch)

    def _batch(self, records: int, keys: list[bytes], event_id: bytes) -> bytes:
        return encode_batch([self._record(n, keys, event_id % n) for n in range(records)])

    def _record(self, number: int, keys: list[bytes], event_id: bytes) -> NewRecord:
        key = keys[0] if number % self.share == 0 else keys[1 + number % (len(keys) - 1)]
        body = b'{"id":"%b","data":"' % event_id
        start = number * BODY_BYTES // 2
        body += _TEXT[start : start + BODY_BYTES - len(body) - 2] + b'"}'
        headers = (
            ("event-id", event_id),
            ("event-type", b"follow.created"),
            ("origin", b"local"),
            ("server", b"bench"),
        )
        return NewRecord(self._time_of(number), key, body, headers)

    def _keys(self) -> list[bytes]:
        """Return the webhook's key, and the keys of others in the same partition."""
        candidates = (f"wh_bench{number:016d}".encode() for number in range(WEBHOOKS * 1_000))
        others = (
            key for key in candidates if partition_for_key(key, self.partitions) == self.partition
        )
        return [self.webhook_id.encode(), *(next(others) for _ in range(WEBHOOKS - 1))]


def _compressed(batch: bytes) -> bytearray:
    """Return a batch with its records compressed; its CRC is not set yet."""
    records = compress(Codec.SNAPPY, batch[HEADER_BYTES:])
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records)
    header = read_header(batch)._replace(batch_length=length, attributes=Codec.SNAPPY)
    return bytearray(HEADER.pack(*header) + records)


def write_history(address: Address, history: History) -> None:
    """Write a history to its partition, which must be empty.

    Raises:
        ErrorResponse: the broker rejects a batch.
    """
    expected = 0
    with socket.create_connection(address) as sock:
        for batch, records in history.batches():
            request = encode_produce(DELIVERY_LOG, batch, records, ACKS_LEADER, history.partition)
            sock.sendall(request.frame)
            base_offset = request.base_offset(sock.recv(request.response_bytes, socket.MSG_WAITALL))
            assert base_offset == expected, (base_offset, expected)
            expected += records
    assert expected == history.records, (expected, history.records)
