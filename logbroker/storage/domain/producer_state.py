"""The last batches of idempotent producers, so that a retry is not stored twice."""

from collections.abc import Iterable
from struct import Struct, error
from typing import Final, NamedTuple

from crc32c import crc32c

from logbroker.errors import CorruptBatch, InvalidProducerEpoch, OutOfOrderSequence
from logbroker.records.batch import BatchHeader, Buffer

BATCHES_KEPT: Final = 5
"""Batches per producer: the maximum in flight of an idempotent client (KIP-98)."""

SEQUENCE_MAX: Final = 2**31 - 1
"""The maximum sequence number, after which 0 follows."""

NOT_A_DUPLICATE: Final = -1


class SequencedBatch(NamedTuple):
    """A stored batch: its first and last sequence number and its base offset."""

    first_sequence: int
    last_sequence: int
    base_offset: int


class ProducerEntry(NamedTuple):
    """One producer: its epoch, the time of its last write, and its last batches, oldest first."""

    epoch: int
    seen_ms: int
    batches: tuple[SequencedBatch, ...]

    @property
    def last_offset(self) -> int:
        """The offset of the producer's last record."""
        first, last, base_offset = self.batches[-1]
        return base_offset + ((last - first) & SEQUENCE_MAX)


def sequence_after(sequence: int, count: int) -> int:
    """Return the sequence number `count` after this one, with wrap-around to 0."""
    return (sequence + count) & SEQUENCE_MAX


class ProducerState:
    """The idempotent producers of one partition.

    Entries of staged batches can be undone until `commit`. Entries are immutable, so undoing
    restores the old entry.

    Source: KIP-98; Kafka, `ProducerStateManager.java`, `ProducerAppendInfo.java`.
    """

    __slots__ = ("_before", "entries")

    def __init__(self, entries: dict[int, ProducerEntry] | None = None) -> None:
        self.entries: dict[int, ProducerEntry] = entries if entries is not None else {}
        self._before: dict[int, ProducerEntry | None] = {}

    def check(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> int:
        """Return the base offset of an identical stored batch, or `NOT_A_DUPLICATE`.

        An unknown producer may start at any sequence number: its state may have expired.

        Raises:
            InvalidProducerEpoch: the producer has written with a newer epoch.
            OutOfOrderSequence: batches before this one are missing.
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
                f"producer {producer_id} sent sequence {first_sequence}, expected {expected}"
            )
        return NOT_A_DUPLICATE

    def record(self, producer_id: int, epoch: int, batch: SequencedBatch, now_ms: int) -> None:
        """Add a batch that `check` accepted."""
        entry = self.entries.get(producer_id)
        self._before.setdefault(producer_id, entry)
        kept = entry.batches[1 - BATCHES_KEPT :] if entry and entry.epoch == epoch else ()
        self.entries[producer_id] = ProducerEntry(epoch, now_ms, (*kept, batch))

    def add_batch(self, header: BatchHeader, now_ms: int) -> None:
        """Add a batch of the log without checks."""
        if header.producer_id >= 0 and not header.is_control:
            last = sequence_after(header.base_sequence, header.last_offset_delta)
            batch = SequencedBatch(header.base_sequence, last, header.base_offset)
            self.record(header.producer_id, header.producer_epoch, batch, now_ms)

    def commit(self) -> None:
        """Keep the added batches: they are written to the log."""
        if self._before:
            self._before.clear()

    def undo(self) -> None:
        """Remove the batches added since the last `commit`."""
        for producer_id, entry in self._before.items():
            if entry is None:
                del self.entries[producer_id]
            else:
                self.entries[producer_id] = entry
        self._before.clear()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers without writes for this long by the broker's clock.

        Record timestamps are not used: they may be years old (a mirror) or missing.
        """
        oldest_ms = now_ms - expiration_ms
        expired = [key for key, entry in self.entries.items() if entry.seen_ms < oldest_ms]
        for producer_id in expired:
            del self.entries[producer_id]


def _check_new_epoch(
    producer_id: int, epoch: int, first_sequence: int, entry: ProducerEntry
) -> None:
    if epoch < entry.epoch:
        raise InvalidProducerEpoch(
            f"producer {producer_id} sent epoch {epoch}, its current epoch is {entry.epoch}"
        )
    if first_sequence != 0:
        raise OutOfOrderSequence(
            f"producer {producer_id} started epoch {epoch} with sequence {first_sequence}, not 0"
        )


SNAPSHOT_VERSION: Final = 1
_PREAMBLE: Final = Struct(">hIi")
_CRC_END: Final = 6
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_NO_COORDINATOR: Final = -1
_NO_TRANSACTION: Final = -1


def encode_snapshot(entries: dict[int, ProducerEntry]) -> bytes:
    """Encode `<offset, 20 digits>.snapshot`: all producers at that offset, big-endian.

        0  version  int16   1
        2  crc      uint32  CRC-32C of all bytes after it
        6  count    int32
        then per batch: producerId int64, epoch int16, lastSequence int32, lastOffset int64,
        offsetDelta int32, timestamp int64, coordinatorEpoch int32 = -1,
        currentTxnFirstOffset int64 = -1

    Kafka writes the last batch of a producer; this broker writes all stored batches, oldest
    first, so that a retry of an older batch is detected after a restart. Kafka reads these
    files too: it uses the last entry of a producer.

    Written at each roll and at a clean close. A torn file fails its CRC, and an older one is
    used. Deleted with the segment that begins at its offset.

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
    """Return the producers of a snapshot file.

    Raises:
        CorruptBatch: the file is truncated, has another version, or its CRC does not match.
    """
    try:
        version, crc, count = _PREAMBLE.unpack_from(content)
        rows = list(_ENTRY.iter_unpack(memoryview(content)[_PREAMBLE.size :]))
    except error:
        raise CorruptBatch(f"snapshot of {len(content)} bytes is truncated") from None
    if version != SNAPSHOT_VERSION or crc != crc32c(memoryview(content)[_CRC_END:]):
        raise CorruptBatch(f"snapshot of version {version} with CRC {crc} is corrupt")
    if count != len(rows):
        raise CorruptBatch(f"snapshot has {len(rows)} entries, expected {count}")
    return _state_of(rows)


def _state_of(rows: Iterable[tuple[int, ...]]) -> ProducerState:
    state = ProducerState()
    for producer_id, epoch, last_sequence, last_offset, delta, seen_ms, _, _ in rows:
        first_sequence = (last_sequence - delta) & SEQUENCE_MAX
        batch = SequencedBatch(first_sequence, last_sequence, last_offset - delta)
        state.record(producer_id, epoch, batch, seen_ms)
    state.commit()
    return state
