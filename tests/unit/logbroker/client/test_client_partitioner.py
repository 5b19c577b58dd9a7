import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as foreign_murmur2

from logbroker.client.partitioner import murmur2, partition_for_key

# The vectors of Kafka's own test, UtilsTest.testMurmur2, as Java's signed numbers.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_the_hash_is_the_one_of_java(key: bytes, signed: int) -> None:
    assert murmur2(key) == signed & 0xFFFFFFFF


@given(st.binary(max_size=100))
def test_the_hash_is_the_one_of_kafka_python(key: bytes) -> None:
    assert murmur2(key) == foreign_murmur2(key) & 0xFFFFFFFF


@pytest.mark.parametrize(("key", "signed"), VECTORS.items())
def test_a_negative_hash_loses_its_sign_bit(key: bytes, signed: int) -> None:
    assert partition_for_key(key, 2**31) == signed & 0x7FFFFFFF


@given(st.binary(max_size=100), st.integers(1, 10_000))
def test_a_partition_is_always_one_of_those_there(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
