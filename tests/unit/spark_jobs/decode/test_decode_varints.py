import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from logbroker.errors import CorruptBatch
from logbroker.records.varint import encode_varint, encode_varlong, read_varint, read_varlong
from spark_jobs.decode.varints import PADDING, VarintBytes

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
EDGES = sorted({sign * 2**bits + by for bits in range(63) for sign in (1, -1) for by in (-1, 0, 1)})


def placed(encoded: list[bytes]) -> tuple[bytes, np.ndarray, list[int]]:
    """All numbers concatenated, and where each begins and ends."""
    ends = np.cumsum([len(number) for number in encoded], dtype=np.int64)
    at = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    return b"".join(encoded) + PADDING, at, ends.tolist()


@given(st.lists(int32s, min_size=1, max_size=40))
def test_32_bit_numbers_round_trip(numbers: list[int]) -> None:
    data, at, ends = placed([encode_varint(number) for number in numbers])
    read = VarintBytes(data).int32(at)
    assert read.values.tolist() == numbers
    assert read.after.tolist() == ends
    assert not read.is_bad.any()


@given(st.lists(int64s, min_size=1, max_size=40))
def test_64_bit_numbers_round_trip(numbers: list[int]) -> None:
    data, at, ends = placed([encode_varlong(number) for number in numbers])
    read = VarintBytes(data).int64(at)
    assert read.values.tolist() == numbers
    assert read.after.tolist() == ends
    assert not read.is_bad.any()


def test_numbers_around_every_power_of_two_round_trip() -> None:
    edges = [*EDGES, 2**63 - 1, -(2**63)]
    data, at, ends = placed([encode_varlong(number) for number in edges])
    read = VarintBytes(data).int64(at)
    assert (read.values.tolist(), read.after.tolist()) == (edges, ends)
    short = [number for number in EDGES if -(2**31) <= number < 2**31]
    data, at, ends = placed([encode_varint(number) for number in short])
    read = VarintBytes(data).int32(at)
    assert (read.values.tolist(), read.after.tolist()) == (short, ends)


@given(
    st.binary(min_size=1, max_size=14)
    | st.lists(st.sampled_from([0, 1, 127, 128, 255]), max_size=14).map(bytes)
)
@example(b"\xff\xff\xff\xff\x0f")
@example(b"\x80\x80\x80\x80\x10")
@example(b"\xff" * 9 + b"\x01")
@example(b"\x80" * 9 + b"\x02")
def test_any_bytes_equal_the_reference_decoder(octets: bytes) -> None:
    data = octets + PADDING
    at = np.zeros(1, np.int64)
    for read_plainly, read in (
        (read_varint, VarintBytes(data).int32(at)),
        (read_varlong, VarintBytes(data).int64(at)),
    ):
        try:
            value, after = read_plainly(data, 0)
        except CorruptBatch:
            assert read.is_bad.tolist() == [True]
        else:
            assert not read.is_bad.any()
            assert (read.values.tolist(), read.after.tolist()) == ([value], [after])


@pytest.mark.parametrize("size", range(2, 10))
def test_a_number_may_have_more_bytes_than_necessary(size: int) -> None:
    data = bytes([0x82] + [0x80] * (size - 2) + [0]) + PADDING
    assert VarintBytes(data).int64(np.zeros(1, np.int64)).values.tolist() == [1]
