"""The partition of a key, as computed by Java's default partitioner.

librdkafka calls it `murmur2_random`. A record without a key can go to any partition.

Source: Austin Appleby, MurmurHash2 (32 bits); Kafka, `BuiltInPartitioner.partitionForKey`.
"""

import struct
from typing import Final

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_WORD: Final = 0xFFFFFFFF
_NOT_NEGATIVE: Final = 0x7FFFFFFF


def partition_for_key(key: bytes, partitions: int) -> int:
    """Return the partition of `key`, in [0, partitions)."""
    assert partitions > 0, f"invalid number of partitions: {partitions}"
    # Java's hashes are signed; it clears the sign bit, which differs from the absolute value.
    return (murmur2(key) & _NOT_NEGATIVE) % partitions


def murmur2(data: bytes) -> int:
    """Return the 32-bit hash of `data` with Kafka's seed, in [0, 2**32)."""
    whole = len(data) & ~3
    state = _SEED ^ len(data)
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        state = (state * _MULTIPLIER & _WORD) ^ _mix(word)
    if whole != len(data):
        state = (state ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    state = (state ^ state >> 13) * _MULTIPLIER & _WORD
    return state ^ state >> 15


def _mix(word: int) -> int:
    word = word * _MULTIPLIER & _WORD
    return (word ^ word >> 24) * _MULTIPLIER & _WORD
