"""Selects the compiled or the pure form of `validation.py`, and validates compressed batches.

mypyc compiles a copy of `validation.py` into the module `validation_HASH` of this package, where
HASH is a hash of the text. A change of the text changes the hash, so a compiled module is never
used for another text than its own. `setup.py` builds the module. Where it is missing, the text
itself is used: it does the same, and takes about fifty times as long.
"""

import pkgutil
from importlib import import_module
from importlib.util import source_hash
from typing import TYPE_CHECKING, Final

from logbroker.errors import CorruptBatch, InvalidRecord
from logbroker.records import validation
from logbroker.records.batch import COMPRESSION_MASK, HEADER_BYTES
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
