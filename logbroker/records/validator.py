"""Selects the compiled or the pure form of `validation.py`, and limits what a turn validates.

mypyc compiles a copy of `validation.py` into the module `validation_HASH` of this package, where
HASH is a hash of the text. A change of the text changes the hash, so a compiled module is never
used for another text than its own. `setup.py` builds the module. Where it is missing, the text
itself is used: it does the same, and takes about fifty times as long.
"""

import pkgutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import source_hash
from typing import TYPE_CHECKING, ClassVar, Final

from logbroker.errors import CorruptBatch, InvalidRecord, LargeBatch
from logbroker.records import validation
from logbroker.records.batch import COMPRESSION_MASK, HEADER_BYTES, read_header
from logbroker.records.compression import Codec, decompress
from logbroker.records.record import RECORDS_BYTES_MAX

RATIO_MAX: Final = 20
"""The largest ratio of decompressed to compressed records above `PLAIN_BYTES_ALLOWED`."""

PLAIN_BYTES_ALLOWED: Final = 16 * 2**20
"""Records may decompress to this size at any ratio, since repeated values compress well."""

SOURCE: Final = "validation.py"


def module_name(source: bytes) -> str:
    """Return the name of the module that is compiled from this text of `validation.py`."""
    return f"validation_{source_hash(source).hex()}"


def plain_bytes_max(compressed_bytes: int) -> int:
    """Return the size to which this many compressed bytes of records may decompress."""
    return min(RECORDS_BYTES_MAX, max(PLAIN_BYTES_ALLOWED, RATIO_MAX * compressed_bytes))


def decompress_records(batch: memoryview, attributes: int) -> tuple[memoryview, int]:
    """Return the records of a batch, decompressed if need be, and the position where they start.

    Raises:
        InvalidRecord: they are not one whole block of the codec, or are larger than
            `plain_bytes_max` when decompressed.
    """
    codec = Codec(attributes & COMPRESSION_MASK)
    if codec is Codec.NONE:
        return batch, HEADER_BYTES
    data = batch[HEADER_BYTES:]
    try:
        return memoryview(decompress(codec, data, plain_bytes_max(len(data)))), 0
    except CorruptBatch as error:
        raise InvalidRecord(str(error)) from None


def validate_batch(
    batch: memoryview,
    timestamp_range: tuple[int, int],
    pause: Callable[[], object],
    *,
    key_required: bool,
) -> int:
    """Return the largest timestamp of the records of one whole batch of any size, or -1.

    Raises: as `decompress_records` and `validate_records`.
    """
    header = read_header(batch)
    records, start = decompress_records(batch, header.attributes)
    return validate_records(
        records,
        start,
        header.record_count,
        header.base_timestamp,
        *timestamp_range,
        key_required,
        pause=pause,
    )


if TYPE_CHECKING:
    IS_COMPILED = False
    """Whether `validate_records` is the compiled form."""
    validate_records = validation.validate_records
else:
    _source = pkgutil.get_data(__package__, SOURCE)
    try:
        _compiled = import_module(f"{__package__}.{module_name(_source)}")
    except ImportError:
        IS_COMPILED = False
        validate_records = validation.validate_records
    else:
        IS_COMPILED = True
        validate_records = _compiled.validate_records

ITEMS_AT_ONCE: Final = 100_000 if IS_COMPILED else 8_000
"""The maximum of records of a batch, and of headers, that the event loop validates: a 1 MB batch of
stock clients. In either form, that many take up to some 10 ms, and usually 2 to 8 ms."""

PLAIN_BYTES_PER_TURN: Final = 2 * 2**20
"""The maximum of decompressed bytes in one turn of the event loop: some 5 ms with gzip."""


class Allowance:
    """How much may be validated at once: everything."""

    __slots__ = ()
    headers_max: ClassVar[int] = validation.HEADERS_UNLIMITED
    """The maximum of headers in a batch."""

    def take_records(
        self, batch: memoryview, attributes: int, count: int
    ) -> tuple[memoryview, int]:
        """Return the records of a batch of `count` records as `decompress_records` does."""
        assert count > 0
        return decompress_records(batch, attributes)


UNLIMITED: Final = Allowance()


class TurnAllowance(Allowance):
    """What one turn of the event loop may still validate.

    A few bytes may decompress to megabytes, and one turn handles hundreds of requests. What
    exceeds the allowance is validated on another thread, by `validate_batch`.
    """

    __slots__ = ("_bytes_left", "_records_left")
    headers_max: ClassVar[int] = ITEMS_AT_ONCE

    def __init__(self) -> None:
        self.refill()

    def refill(self) -> None:
        """Allow the next turn as much as any other."""
        self._bytes_left = PLAIN_BYTES_PER_TURN
        self._records_left = ITEMS_AT_ONCE

    def take_records(
        self, batch: memoryview, attributes: int, count: int
    ) -> tuple[memoryview, int]:
        """Return the records of a batch of `count` records as `decompress_records` does.

        Raises:
            LargeBatch: they exceed the allowance, or cannot be decompressed.
        """
        codec = Codec(attributes & COMPRESSION_MASK)
        is_used_up = count > self._records_left or self._bytes_left == 0
        if count > ITEMS_AT_ONCE or (codec and is_used_up):
            raise LargeBatch(f"the batch has {count} records")
        if not codec:
            return batch, HEADER_BYTES
        bytes_max, self._bytes_left = self._bytes_left, 0
        try:
            plain = decompress(codec, batch[HEADER_BYTES:], bytes_max)
        except CorruptBatch as error:
            # It is damaged or too large for a turn: only a whole decompression says which.
            raise LargeBatch(str(error)) from None
        self._bytes_left = bytes_max - len(plain)
        self._records_left -= count
        return memoryview(plain), 0
