import gzip
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
import snappy
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as foreign

from logbroker.errors import CorruptBatch
from logbroker.records.compression import Codec, compress, decompress
from tests.support.property_examples import examples

PACKED = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
MIB = 2**20
plain_bytes = st.binary(max_size=2000) | st.builds(
    bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(0, 5000)
)


def xerial(*blocks: bytes) -> bytes:
    framed = [struct.pack(">i", len(block)) + block for block in blocks]
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + b"".join(framed)


@given(st.sampled_from(Codec), plain_bytes)
def test_data_is_decompressed_as_compressed(codec: Codec, plain: bytes) -> None:
    packed = compress(codec, plain)
    for buffer in (bytes, bytearray, memoryview):
        assert decompress(codec, buffer(packed), len(plain)) == plain


FOREIGN_ENCODERS = [
    (Codec.GZIP, foreign.gzip_encode),
    (Codec.SNAPPY, lambda data: foreign.snappy_encode(data, xerial_compatible=False)),
    (Codec.SNAPPY, lambda data: foreign.snappy_encode(data, xerial_blocksize=700)),
    (Codec.LZ4, foreign.lz4_encode),
    (Codec.ZSTD, foreign.zstd_encode),
]
FOREIGN_DECODERS = [
    (Codec.GZIP, foreign.gzip_decode),
    (Codec.SNAPPY, foreign.snappy_decode),
    (Codec.LZ4, foreign.lz4_decode),
    (Codec.ZSTD, foreign.zstd_decode),
]


@pytest.mark.parametrize(("codec", "encode"), FOREIGN_ENCODERS)
@given(plain=plain_bytes)
def test_blocks_of_kafka_python_are_decompressed(codec, encode, plain) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    assert decompress(codec, encode(plain), len(plain)) == plain


@pytest.mark.parametrize(("codec", "decode"), FOREIGN_DECODERS)
@given(plain=plain_bytes)
def test_kafka_python_decompresses_our_blocks(codec, decode, plain) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    assert decode(compress(codec, plain)) == plain


TOOLS = [(Codec.GZIP, "gzip"), (Codec.LZ4, "lz4"), (Codec.ZSTD, "zstd")]


@pytest.mark.processes
@pytest.mark.parametrize(("codec", "tool"), TOOLS)
def test_blocks_are_compatible_with_the_codecs_own_tool(codec: Codec, tool: str) -> None:
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    plain = b"an event, and again an event; " * 5000
    packed = subprocess.run([tool, "-c"], input=plain, capture_output=True, check=True).stdout
    assert decompress(codec, packed, len(plain)) == plain
    ours = compress(codec, plain)
    assert (
        subprocess.run([tool, "-dc"], input=ours, capture_output=True, check=True).stdout == plain
    )


@pytest.mark.parametrize("codec", PACKED)
def test_a_block_cut_at_any_byte_is_corrupt(codec: Codec) -> None:
    packed = compress(codec, os.urandom(64) + b"abc" * 100)
    for end in range(len(packed)):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed[:end], 1000)


def test_truncated_xerial_framing_is_corrupt_or_has_fewer_blocks() -> None:
    blocks = [snappy.compress(b"one" * 9), snappy.compress(b"two" * 9)]
    framed = xerial(*blocks)
    ends_of_blocks = {16: b"", 16 + 4 + len(blocks[0]): b"one" * 9}
    for end in range(len(framed)):
        if end in ends_of_blocks:
            assert decompress(Codec.SNAPPY, framed[:end], 1000) == ends_of_blocks[end]
            continue
        with pytest.raises(CorruptBatch):
            decompress(Codec.SNAPPY, framed[:end], 1000)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_bytes_after_the_block_are_corrupt(codec: Codec) -> None:
    packed = compress(codec, b"abc" * 100)
    for trailer in (b"\0", packed):
        with pytest.raises(CorruptBatch):
            decompress(codec, packed + trailer, 1000)


@pytest.mark.parametrize("codec", Codec)
def test_the_bound_is_exact_to_the_byte(codec: Codec) -> None:
    packed = compress(codec, b"x" * 70_000)
    assert len(decompress(codec, packed, 70_000)) == 70_000
    with pytest.raises(CorruptBatch, match="69999"):
        decompress(codec, packed, 69_999)


def test_the_limit_applies_to_all_xerial_blocks_in_total() -> None:
    framed = xerial(*[snappy.compress(b"x" * 100)] * 3)
    assert decompress(Codec.SNAPPY, framed, 300) == b"x" * 300
    with pytest.raises(CorruptBatch, match="SNAPPY block decompresses to more than"):
        decompress(Codec.SNAPPY, framed, 299)


def test_a_zstd_stream_of_unknown_size_is_bounded() -> None:
    writer = zstandard.ZstdCompressor().compressobj()
    packed = writer.compress(b"x" * 70_000) + writer.flush()
    assert zstandard.frame_content_size(packed) == -1
    assert decompress(Codec.ZSTD, packed, 70_000) == b"x" * 70_000
    with pytest.raises(CorruptBatch, match="69999"):
        decompress(Codec.ZSTD, packed, 69_999)


PLAIN = 64 * MIB


def packed_zeros(codec: Codec) -> bytes:
    return compress(codec, bytes(PLAIN))


BOMBS: list[tuple[Codec, Callable[[], bytes]]] = [
    # Made when they are needed: every process that collects this file would make them all.
    *((codec, partial(packed_zeros, codec)) for codec in PACKED),
    (Codec.SNAPPY, lambda: xerial(snappy.compress(bytes(PLAIN)))),
    # Announces 4 GiB - 1 and holds nothing.
    (Codec.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f"),
    (Codec.SNAPPY, lambda: xerial(b"\xff\xff\xff\xff\x0f")),
    (Codec.GZIP, lambda: gzip.compress(bytes(PLAIN), mtime=0)),
]


# The codecs' buffers are no Python objects, so the kernel is asked for the process's peak.
DEFUSE = """
import re, sys
from pathlib import Path
from logbroker.errors import CorruptBatch
from logbroker.records.compression import Codec, compress, decompress

def peak_kib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

codec, bomb = Codec(int(sys.argv[1])), sys.stdin.buffer.read()
decompress(codec, compress(codec, bytes(1 << 20)), 1 << 20)
before = peak_kib()
try:
    decompress(codec, bomb, 1 << 20)
except CorruptBatch:
    print(peak_kib() - before)
"""


@pytest.mark.processes
@pytest.mark.parametrize(("codec", "bomb"), BOMBS)
def test_a_decompression_bomb_is_corrupt_and_allocates_no_memory(
    codec: Codec, bomb: Callable[[], bytes]
) -> None:
    command = [sys.executable, "-c", DEFUSE, str(int(codec))]
    done = subprocess.run(command, input=bomb(), capture_output=True, check=True)
    assert int(done.stdout) < 4 * 1024


@examples(300)
@given(st.sampled_from(PACKED), st.binary(max_size=200))
def test_garbage_is_corrupt_or_within_the_bound(codec: Codec, garbage: bytes) -> None:
    with suppress(CorruptBatch):
        assert len(decompress(codec, garbage, 1000)) <= 1000


@examples(300)
@given(st.sampled_from(PACKED), st.data())
def test_a_flipped_byte_never_gives_another_error(codec: Codec, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, b"what was sent " * 20))
    index = data.draw(st.integers(0, len(packed) - 1))
    packed[index] ^= data.draw(st.integers(1, 255))
    with suppress(CorruptBatch):
        assert len(decompress(codec, packed, 1000)) <= 1000


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1])
def test_a_xerial_length_out_of_range_is_rejected_with_its_value(length: int) -> None:
    framed = xerial()[:16] + struct.pack(">i", length) + b"xxxx"
    with pytest.raises(CorruptBatch, match=f"invalid length {length}"):
        decompress(Codec.SNAPPY, framed, 1000)
