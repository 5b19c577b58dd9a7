"""A partition of `delivery_log` with as much history as one likes around one window.

The window's records are encoded one by one. The history around it is one stretch of records
that is sent again and again with later timestamps, as nobody replays it; its keys are those of
many webhooks, the replayed one among them, and all of them belong to the partition. Records
come at one rate throughout, so that logs of different length differ in nothing else.
"""

import socket
import struct
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from app.log.topics import DELIVERY_LOG
from app.replay.model import Window
from benchmarks.frames import ACKS_LEADER, encode_produce
from benchmarks.produce_load import Address
from logbroker.client.partitioner import partition_for_key
from logbroker.records.batch import CRC_START
from logbroker.records.record import NewRecord, encode_batch

STRETCH_RECORDS: Final = 500
WINDOW_BATCH_RECORDS: Final = 1_000
WEBHOOKS: Final = 40
SHARE: Final = 3
"""Every so many-th record is the replayed webhook's."""

STEP_MS: Final = 38
"""Ten million records, so far apart, are four and a half days, less than may be replayed."""

BEHIND_NOW_MS: Final = 60_000
BODY_BYTES: Final = 200

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

    @classmethod
    def of(cls, webhook_id: str, partitions: int, records: int, events: int) -> "History":
        """So many records up to now, of which `events` in the window are the webhook's."""
        now_ms = time.time_ns() // 1_000_000
        start_ms = now_ms - BEHIND_NOW_MS - records * STEP_MS
        return cls(webhook_id, partitions, records, events * SHARE, start_ms)

    @property
    def partition(self) -> int:
        """The one partition that all keys belong to."""
        return partition_for_key(self.webhook_id.encode(), self.partitions)

    def window_of(self, events: int) -> Window:
        """The window of the webhook's first `events` events behind the first stretch of history."""
        end = self._before + events * SHARE
        return Window(self._time_of(self._before), self._time_of(end))

    @property
    def _before(self) -> int:
        return (self.records - self.window_records) // 2

    def _time_of(self, number: int) -> int:
        return self.start_ms + number * STEP_MS

    def batches(self) -> Iterator[tuple[bytes, int]]:
        """Every batch with the number of its records, in order."""
        keys = self._keys()
        stretch = bytearray(
            encode_batch([self._record(n, keys, "old") for n in range(STRETCH_RECORDS)])
        )
        end = self._before + self.window_records
        yield from self._repeated(stretch, 0, self._before)
        for start in range(self._before, end, WINDOW_BATCH_RECORDS):
            numbers = range(start, min(start + WINDOW_BATCH_RECORDS, end))
            yield encode_batch([self._record(n, keys, "evt") for n in numbers]), len(numbers)
        yield from self._repeated(stretch, end, self.records)

    def _repeated(self, stretch: bytearray, start: int, end: int) -> Iterator[tuple[bytes, int]]:
        assert (end - start) % STRETCH_RECORDS == 0, (start, end)
        for number in range(start, end, STRETCH_RECORDS):
            first_ms = self._time_of(number)
            last_ms = first_ms + (STRETCH_RECORDS - 1) * STEP_MS
            _TIMES.pack_into(stretch, _TIMES_AT, first_ms, last_ms)
            _CRC.pack_into(stretch, _CRC_AT, crc32c(memoryview(stretch)[CRC_START:]))
            yield bytes(stretch), STRETCH_RECORDS

    def _record(self, number: int, keys: list[bytes], prefix: str) -> NewRecord:
        event_id = f"{prefix}_{number:010d}"
        key = (
            keys[0] if (number - self._before) % SHARE == 0 else keys[1 + number % (len(keys) - 1)]
        )
        body = b'{"id":"%s","data":"' % event_id.encode()
        body += b"x" * (BODY_BYTES - len(body) - 2) + b'"}'
        headers = (
            ("event-id", event_id.encode()),
            ("event-type", b"follow.created"),
            ("origin", b"here"),
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
