"""What idempotent producers last wrote to a partition, so that a retry is not stored twice."""

from collections.abc import Iterable
from struct import Struct, error
from typing import Final, NamedTuple

from crc32c import crc32c

from logbroker.errors import CorruptBatch, InvalidProducerEpoch, OutOfOrderSequence
from logbroker.records.batch import BatchHeader, Buffer

BATCHES_KEPT: Final = 5
"""Batches remembered per producer: as many as an idempotent client has in flight (KIP-98)."""

SEQUENCE_MAX: Final = 2**31 - 1
"""Sequence numbers count up to here and go on at 0."""

NOT_A_DUPLICATE: Final = -1


class SequencedBatch(NamedTuple):
    """A batch that was stored: its first and last sequence number and its first offset."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerEntry(NamedTuple):
    """One producer: its epoch, when it last wrote, and its last batches, oldest first."""

    epoch: int
    seen_ms: int
    batches: tuple[SequencedBatch, ...]


def sequence_after(sequence: int, count: int) -> int:
    """The sequence number `count` behind this one; behind the largest comes 0."""
    return (sequence + count) & SEQUENCE_MAX


class ProducerState:
    """The producers of one partition, kept in step with its log.

    What is recorded for staged batches can be taken back until `commit`. Entries are
    immutable, so taking back is putting the old entry in place.

    Source: KIP-98; Kafka, `ProducerStateManager.java`, `ProducerAppendInfo.java`.
    """

    __slots__ = ("_before", "entries")

    def __init__(self, entries: dict[int, ProducerEntry] | None = None) -> None:
        self.entries: dict[int, ProducerEntry] = entries if entries is not None else {}
        self._before: dict[int, ProducerEntry | None] = {}

    def check(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> int:
        """The offset under which this batch is stored already, or `NOT_A_DUPLICATE`.

        A producer that is not known may start anywhere: its state may have expired.

        Raises:
            InvalidProducerEpoch: a newer epoch of the producer has written.
            OutOfOrderSequence: batches are missing before this one.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return NOT_A_DUPLICATE
        if epoch != entry.epoch:
            _check_new_epoch(producer_id, epoch, first_sequence, entry)
            return NOT_A_DUPLICATE
        for batch in entry.batches:
            if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                return batch.base_offset
        expected = sequence_after(entry.batches[-1].last_sequence, 1)
        if first_sequence != expected:
            raise OutOfOrderSequence(
                f"producer {producer_id} sent sequence {first_sequence}, expected is {expected}"
            )
        return NOT_A_DUPLICATE

    def record(self, producer_id: int, epoch: int, batch: SequencedBatch, now_ms: int) -> None:
        """Remember a batch that `check` let pass."""
        entry = self.entries.get(producer_id)
        self._before.setdefault(producer_id, entry)
        kept = entry.batches[1 - BATCHES_KEPT :] if entry and entry.epoch == epoch else ()
        self.entries[producer_id] = ProducerEntry(epoch, now_ms, (*kept, batch))

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Remember a batch found in the log, whatever came before it."""
        if header.producer_id >= 0 and not header.is_control:
            last = sequence_after(header.base_sequence, header.last_offset_delta)
            batch = SequencedBatch(header.base_sequence, last, header.base_offset)
            self.record(header.producer_id, header.producer_epoch, batch, now_ms)

    def commit(self) -> None:
        """What was recorded is in the log now."""
        if self._before:
            self._before.clear()

    def undo(self) -> None:
        """Take back what was recorded since the last `commit`."""
        for producer_id, entry in self._before.items():
            if entry is None:
                del self.entries[producer_id]
            else:
                self.entries[producer_id] = entry
        self._before.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for this long by the broker's clock.

        Record timestamps do not count: they may lie years back (a mirror) or be absent.
        """
        oldest_ms = now_ms - expiration_ms
        gone = [key for key, entry in self.entries.items() if entry.seen_ms < oldest_ms]
        for producer_id in gone:
            del self.entries[producer_id]


def _check_new_epoch(
    producer_id: int, epoch: int, first_sequence: int, entry: ProducerEntry
) -> None:
    if epoch < entry.epoch:
        raise InvalidProducerEpoch(
            f"producer {producer_id} sent epoch {epoch}, {entry.epoch} has written already"
        )
    if first_sequence != 0:
        raise OutOfOrderSequence(
            f"producer {producer_id} began epoch {epoch} with sequence {first_sequence}, not 0"
        )


SNAPSHOT_VERSION: Final = 1
_PREAMBLE: Final = Struct(">hIi")
_CRC_END: Final = 6
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_NO_COORDINATOR: Final = -1
_NO_TRANSACTION: Final = -1


def encode_snapshot(entries: dict[int, ProducerEntry]) -> bytes:
    """`<offset, 20 digits>.snapshot`: all producers as of that offset, big-endian.

        0  version  int16   1
        2  crc      uint32  CRC-32C of everything behind it
        6  count    int32
        then per batch: producerId int64, epoch int16, lastSequence int32, lastOffset int64,
        offsetDelta int32, timestamp int64, coordinatorEpoch int32 = -1,
        currentTxnFirstOffset int64 = -1

    Kafka writes the last batch of a producer; here all that are kept are written, oldest
    first. Kafka lets the last of several entries count, so it reads these files too, and
    a retry of an older batch is recognised even across a restart.

    Taken at each roll and at a clean close; a torn one fails its CRC and an older one is
    used. Removed with the segment that begins at its offset.

    Source: Kafka, `ProducerStateManager.writeSnapshot`.
    """
    body = [
        _encode_batch(producer_id, entry, batch)
        for producer_id, entry in entries.items()
        for batch in entry.batches
    ]
    content = _COUNT.pack(len(body)) + b"".join(body)
    return _PREAMBLE.pack(SNAPSHOT_VERSION, crc32c(content), len(body)) + content[_COUNT.size :]


def _encode_batch(producer_id: int, entry: ProducerEntry, batch: SequencedBatch) -> bytes:
    delta = (batch.last_sequence - batch.first_sequence) & SEQUENCE_MAX
    return _ENTRY.pack(
        producer_id,
        entry.epoch,
        batch.last_sequence,
        batch.base_offset + delta,
        delta,
        entry.seen_ms,
        _NO_COORDINATOR,
        _NO_TRANSACTION,
    )


def decode_snapshot(content: Buffer) -> ProducerState:
    """The producers of a snapshot file.

    Raises:
        CorruptBatch: the file is cut, of another version, or its CRC does not match.
    """
    try:
        version, crc, count = _PREAMBLE.unpack_from(content)
        rows = list(_ENTRY.iter_unpack(memoryview(content)[_PREAMBLE.size :]))
    except error:
        raise CorruptBatch(f"a snapshot of {len(content)} bytes is cut") from None
    if version != SNAPSHOT_VERSION or crc != crc32c(memoryview(content)[_CRC_END:]):
        raise CorruptBatch(f"a snapshot of version {version} with a CRC of {crc} is damaged")
    if count != len(rows):
        raise CorruptBatch(f"a snapshot of {count} entries holds {len(rows)}")
    return _state_of(rows)


def _state_of(rows: Iterable[tuple[int, ...]]) -> ProducerState:
    state = ProducerState()
    for producer_id, epoch, last_sequence, last_offset, delta, seen_ms, _, _ in rows:
        first_sequence = (last_sequence - delta) & SEQUENCE_MAX
        batch = SequencedBatch(first_sequence, last_sequence, last_offset - delta)
        state.record(producer_id, epoch, batch, seen_ms)
    state.commit()
    return state
