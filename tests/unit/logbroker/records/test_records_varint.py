import pytest
from aiokafka.record.util import decode_varint as foreign_decode
from aiokafka.record.util import encode_varint_py as foreign_encode
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import CorruptBatch
from logbroker.records.varint import encode_varint, encode_varlong, read_varint, read_varlong

int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)

# Worked by hand from the zig-zag rule: 0, -1, 1, -2, ... are 0, 1, 2, 3, ...
BY_HAND = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (63, "7e"),
    (-64, "7f"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]


@pytest.mark.parametrize(("value", "octets"), BY_HAND)
def test_numbers_worked_by_hand(value: int, octets: str) -> None:
    for encode, read in ((encode_varint, read_varint), (encode_varlong, read_varlong)):
        assert encode(value).hex() == octets
        assert read(bytes.fromhex(octets), 0) == (value, len(octets) // 2)


def test_the_ends_of_64_bits_have_ten_bytes() -> None:
    assert encode_varlong(2**63 - 1).hex() == "feffffffffffffffff01"
    assert encode_varlong(-(2**63)).hex() == "ffffffffffffffffff01"


@given(int64, st.binary(max_size=3), st.binary(max_size=3))
def test_a_number_is_read_from_the_middle_of_a_buffer(
    value: int, before: bytes, after: bytes
) -> None:
    octets = encode_varlong(value)
    for buffer in (bytes, bytearray, memoryview):
        read = read_varlong(buffer(before + octets + after), len(before))
        assert read == (value, len(before) + len(octets))


@given(int64)
def test_aiokafka_writes_and_reads_the_same(value: int) -> None:
    foreign = bytearray()
    foreign_encode(value, foreign.append)
    assert encode_varlong(value) == foreign
    assert foreign_decode(bytearray(encode_varlong(value)), 0) == read_varlong(foreign, 0)


@given(int32)
def test_a_small_number_has_the_same_encoding_in_both_widths(value: int) -> None:
    assert encode_varint(value) == encode_varlong(value)


@given(int64)
def test_a_number_cut_at_any_byte_is_corrupt(value: int) -> None:
    octets = encode_varlong(value)
    for end in range(len(octets)):
        with pytest.raises(CorruptBatch, match="cut off"):
            read_varlong(octets[:end], 0)


@pytest.mark.parametrize("octets", ["8080808010", "ffffffff1f", "808080808001", "ff" * 20])
def test_more_than_32_bits_are_corrupt(octets: str) -> None:
    with pytest.raises(CorruptBatch, match="32 bits"):
        read_varint(bytes.fromhex(octets), 0)


@pytest.mark.parametrize("octets", ["80" * 9 + "02", "80" * 10 + "01", "ff" * 20])
def test_more_than_64_bits_are_corrupt(octets: str) -> None:
    with pytest.raises(CorruptBatch, match="64 bits"):
        read_varlong(bytes.fromhex(octets), 0)
