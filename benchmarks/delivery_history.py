"""A partition of `delivery_log` with as much history as one likes around one window.

The window's records are encoded once for a batch, and each batch has event ids of its own put in.
The history around it is one stretch of records that is sent again and again with later
timestamps, as nobody replays it. All is packed with snappy, as the service does. Keys are those of
many webhooks, the replayed one among them, and all of them belong to the partition. Records come
at one rate throughout, so that logs of different length differ in nothing else.
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
"""A multiple of every share, so that all batches of the window have the same keys."""

WEBHOOKS: Final = 40
SHARE: Final = 3
"""Every so many-th record is the replayed webhook's, where nothing else is said."""

STEP_MS: Final = 38
"""Ten million records, so far apart, are four and a half days, less than may be replayed."""

BEHIND_NOW_MS: Final = 60_000
BODY_BYTES: Final = 200

_OLD_ID: Final = b"old_%010d"
_ID_IN_BATCH: Final = b"evt_-batch-%03d"
_BATCH_MARK: Final = b"-batch-"
_BATCH_NUMBER: Final = b"%07d"
"""As long as the mark, in whose place it comes."""

_TEXT: Final = b64encode(Random(2011).randbytes(WINDOW_BATCH_RECORDS * BODY_BYTES))
"""What events say: half of each is what the one before says too, so it packs like real text."""

_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_TIMES: Final = struct.Struct(">qq")
_TIMES_AT: Final = 27


class History(NamedTuple):
    """Records of one partition, the window in the middle."""

    webhook_id: str
    partitions: int
    records: int
    window_records: int
    start_ms: int
    share: int

    @classmethod
    def of(
        cls, webhook_id: str, partitions: int, records: int, events: int, share: int = SHARE
    ) -> "History":
        """So many records up to now, of which `events` in the window are the webhook's."""
        assert WINDOW_BATCH_RECORDS % share == 0, share
        now_ms = time.time_ns() // 1_000_000
        start_ms = now_ms - BEHIND_NOW_MS - records * STEP_MS
        return cls(webhook_id, partitions, records, events * share, start_ms, share)

    @property
    def partition(self) -> int:
        """The one partition that all keys belong to."""
        return partition_for_key(self.webhook_id.encode(), self.partitions)

    @property
    def events(self) -> int:
        """How many of the window's records are the webhook's."""
        return self.window_records // self.share

    def window_of(self, events: int) -> Window:
        """The window of the webhook's first `events` events behind the first stretch of history."""
        end = self._before + events * self.share
        return Window(self._time_of(self._before), self._time_of(end))

    @property
    def _before(self) -> int:
        return (self.records - self.window_records) // 2

    def _time_of(self, number: int) -> int:
        return self.start_ms + number * STEP_MS

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """Every batch with the number of its records, in order."""
        keys = self._keys()
        old = _packed(self._batch(STRETCH_RECORDS, keys, _OLD_ID))
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
            yield self._moved(_packed(batch), number, records), records

    def _moved(self, batch: bytearray, number: int, records: int) -> bytes:
        """A batch with the times of the records from `number` on."""
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
        """The webhook's key and those of others that the same partition holds."""
        candidates = (f"wh_bench{number:016d}".encode() for number in range(WEBHOOKS * 1_000))
        others = (
            key for key in candidates if partition_for_key(key, self.partitions) == self.partition
        )
        return [self.webhook_id.encode(), *(next(others) for _ in range(WEBHOOKS - 1))]


def _packed(batch: bytes) -> bytearray:
    """A batch with its records packed; its CRC is still to be set."""
    records = compress(Codec.SNAPPY, batch[HEADER_BYTES:])
    length = HEADER_BYTES - LENGTH_PREFIX_BYTES + len(records)
    header = read_header(batch)._replace(batch_length=length, attributes=Codec.SNAPPY)
    return bytearray(HEADER.pack(*header) + records)


def load(address: Address, history: History) -> None:
    """Put a history into its partition, which is empty.

    Raises:
        AnswerRefused: the broker does not take a batch.
    """
    expected = 0
    with socket.create_connection(address) as sock:
        for batch, records in history.batches():
            request = encode_produce(DELIVERY_LOG, batch, records, ACKS_LEADER, history.partition)
            sock.sendall(request.frame)
            base_offset = request.base_offset(sock.recv(request.answer_bytes, socket.MSG_WAITALL))
            assert base_offset == expected, (base_offset, expected)
            expected += records
    assert expected == history.records, (expected, history.records)
