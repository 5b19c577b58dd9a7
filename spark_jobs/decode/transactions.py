"""Which batches hold nothing for a reader: markers of transactions, and what was aborted."""

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np

from logbroker.errors import CorruptBatch
from logbroker.records.batch import crc_matches
from logbroker.records.record import decode_records
from spark_jobs.decode.batch_table import BatchTable
from spark_jobs.decode.varints import Flags

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
