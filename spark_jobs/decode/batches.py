"""The wanted batches in a chunk of the log: checked, decompressed and grouped.

Unwanted batches keep their place as batches without records, because a reader's position moves
past them. They are markers of transactions, aborted batches, and batches outside the range.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from crc32c import crc32c

from logbroker.errors import CorruptBatch
from logbroker.records.batch import COMPRESSION_MASK, CRC_START, HEADER_BYTES, Buffer, crc_matches
from logbroker.records.compression import Codec, decompress
from logbroker.records.record import decode_records
from spark_jobs.decode.batch_table import BatchTable, read_table
from spark_jobs.decode.varints import Flags

_CODEC_MAX: Final = max(Codec)


class PlainBatches(NamedTuple):
    """Headers, and the decompressed records of each batch; bodies may be views of the chunk."""

    table: BatchTable
    bodies: Sequence[Buffer]


def plain_batches(
    data: Buffer,
    *,
    start: int,
    end: int,
    aborted: Sequence[tuple[int, int]],
    decompressed_bytes_max: int,
    group_bytes: int,
) -> Iterator[PlainBatches]:
    """The complete batches of `data`, in groups of up to `group_bytes`; a larger one is alone.

    Only batches with offsets in [`start`, `end`) that are neither markers nor aborted have records.
    Earlier batches are omitted. The last batch returned is the first one at `end` or later, which
    shows that the range is complete.

    Raises:
        CorruptBatch: a batch is older than magic 2, or its offsets overlap the previous ones.
        UnreadableBatch: a batch does not match its CRC, has an unknown codec, or cannot be
            decompressed within the bound.
    """
    view = memoryview(data).cast("B")
    table = read_table(view)
    table = table.part(0, int(np.searchsorted(table.base_offsets, end)) + 1)
    is_empty = is_dropped(view, table, aborted) | (table.base_offsets >= end)
    table = table._replace(record_counts=np.where(is_empty, 0, table.record_counts))
    first = int(np.searchsorted(table.next_offsets, start, side="right"))
    wanted = table.part(first, len(table.positions))
    bodies = _bodies(view, wanted, is_empty[first:].tolist(), decompressed_bytes_max)
    for begin, group in _groups(bodies, group_bytes):
        yield PlainBatches(wanted.part(begin, begin + len(group)), group)


def _groups(bodies: Iterable[Buffer], bytes_max: int) -> Iterator[tuple[int, list[Buffer]]]:
    """Groups of bodies that fit in `bytes_max`, and the index of each group's first body."""
    group: list[Buffer] = []
    begin, room = 0, bytes_max
    for index, body in enumerate(bodies):
        if group and len(body) > room:
            yield begin, group
            group, begin, room = [], index, bytes_max
        group.append(body)
        room -= len(body)
    if group:
        yield begin, group


def _bodies(
    view: memoryview, table: BatchTable, is_empty: Sequence[bool], bytes_max: int
) -> Iterator[Buffer]:
    codecs = table.attributes & COMPRESSION_MASK
    columns = (table.positions, table.ends, table.crcs, codecs)
    batches = zip(is_empty, *(column.tolist() for column in columns), strict=True)
    for index, (is_skipped, position, end, crc, codec) in enumerate(batches):
        if is_skipped:
            yield b""
            continue
        if crc32c(view[position + CRC_START : end]) != crc:
            raise table.crc_fault(index)
        body = view[position + HEADER_BYTES : end]
        if codec == Codec.NONE and len(body) <= bytes_max:
            yield body
        else:
            try:
                plain = _decompressed(body, codec, bytes_max)
            except CorruptBatch as error:
                raise table.fault(index, str(error)) from None
            yield plain


def _decompressed(body: memoryview, codec: int, bytes_max: int) -> bytes:
    if codec > _CODEC_MAX:
        raise CorruptBatch(f"codec is {codec}; allowed are 0 to {_CODEC_MAX:d}")
    return decompress(Codec(codec), body, bytes_max)


_CONTROL_KEY: Final = struct.Struct(">hh")
"""Key of a marker: version and type. Source: KIP-98, "Control Records"."""

_ABORT: Final = 0
_MARKER_BYTES_MAX: Final = 2**16
"""A marker has a key of four bytes and a value of six."""


def is_dropped(view: memoryview, table: BatchTable, aborted: Sequence[tuple[int, int]]) -> Flags:
    """Whether each batch of `table`, located in `view`, is a marker or aborted.

    `aborted` has the producer id and first offset of each aborted transaction, which extends to its
    producer's abort marker.

    Raises:
        UnreadableBatch: a marker that ends one of these cannot be read.

    Source: KIP-98, "READ_COMMITTED" fetches.
    """
    dropped = table.is_control
    if not aborted:
        return dropped
    to_come = sorted(aborted, key=lambda transaction: transaction[1], reverse=True)
    producers: set[int] = set()
    last_offsets = (table.base_offsets + table.last_offset_deltas).tolist()
    # Batches outside transactions are never aborted, whatever their producer.
    for index in np.flatnonzero(table.is_control | table.is_transactional).tolist():
        while to_come and to_come[-1][1] <= last_offsets[index]:
            producers.add(to_come.pop()[0])
        producer_id = int(table.producer_ids[index])
        if producer_id not in producers:
            continue
        if not table.is_control[index]:
            dropped[index] = True
        elif _is_abort(view, table, index):
            producers.discard(producer_id)
    return dropped


def _is_abort(view: memoryview, table: BatchTable, index: int) -> bool:
    batch = view[table.positions[index] : table.ends[index]]
    if not crc_matches(batch, int(table.crcs[index])):
        raise table.crc_fault(index)
    try:
        key = decode_records(batch, _MARKER_BYTES_MAX)[0].key
        _, kind = _CONTROL_KEY.unpack_from(key or b"")
    except (CorruptBatch, IndexError, struct.error) as error:
        raise table.fault(index, f"malformed marker: {error}") from None
    return bool(kind == _ABORT)
