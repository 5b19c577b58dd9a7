"""The batches of a chunk of log whose records are wanted: checked, decompressed, and in groups.

Batches whose records are not wanted keep their place, as batches without records, since the
position of a reader moves over them.
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
    """Headers, and the decompressed records of each; bodies may be views into the chunk."""

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
    """The whole batches of `data`, as many together as have `group_bytes`; a larger one is alone.

    Records are given of those batches that may hold an offset in [`start`, `end`), that are no
    markers and that were not aborted. Batches before these are left out. The first one that begins
    at `end` or beyond is the last that is given, since it tells that nothing more comes before.

    Raises:
        CorruptBatch: a batch is older than magic 2, or its offsets do not follow those before.
        UnreadableBatch: one does not match its CRC, names an unknown codec, or cannot be
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
    """Bodies together, as long as they fit, and the index of the first of them."""
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
    for index, (has_none, position, end, crc, codec) in enumerate(batches):
        if has_none:
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
        raise CorruptBatch(f"it names codec {codec}; allowed is 0 to {_CODEC_MAX:d}")
    return decompress(Codec(codec), body, bytes_max)


_CONTROL_KEY: Final = struct.Struct(">hh")
"""Of a marker: version, and the type. Source: KIP-98, "Control Records"."""

_ABORT: Final = 0
_MARKER_BYTES_MAX: Final = 2**16
"""A marker has a key of four bytes and a value of six."""


def is_dropped(view: memoryview, table: BatchTable, aborted: Sequence[tuple[int, int]]) -> Flags:
    """Whether each batch of `table`, which lie in `view`, is a marker or was aborted.

    `aborted` has the producer id and the first offset of each aborted transaction: it counts from
    that offset on, until its producer's abort marker.

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
    # Batches outside transactions belong to none, whoever wrote them.
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
        raise table.fault(index, f"it is no marker: {error}") from None
    return bool(kind == _ABORT)
