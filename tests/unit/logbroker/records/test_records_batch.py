import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.errors import CorruptBatch
from logbroker.records.batch import HEADER_BYTES, crc_matches, iter_batches, read_header
from logbroker.records.record import NewRecord, decode_records, encode_batch


def batch_of(count: int, base_offset: int) -> bytes:
    return encode_batch([NewRecord(0, None, b"v")] * count, base_offset=base_offset)


@given(st.lists(st.integers(1, 5), max_size=4), st.data())
def test_a_cut_buffer_gives_its_whole_batches(counts: list[int], data: st.DataObject) -> None:
    batches = [batch_of(count, 10 * index) for index, count in enumerate(counts)]
    whole = b"".join(batches)
    end = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, batches[: index + 1])) for index in range(len(batches))]
    found = list(iter_batches(whole[:end]))
    assert len(found) == sum(batch_end <= end for batch_end in ends)
    for (header, view), batch in zip(found, batches, strict=False):
        assert view == batch
        assert len(decode_records(view)) == header.record_count


def test_a_header_cut_at_any_byte_is_corrupt() -> None:
    batch = batch_of(1, 0)
    for end in range(HEADER_BYTES):
        with pytest.raises(CorruptBatch, match=f"{end} bytes are shorter than a batch header"):
            read_header(batch[:end])


def test_a_batch_length_below_that_of_a_header_is_corrupt() -> None:
    batch = bytearray(batch_of(1, 0))
    batch[8:12] = (48).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="invalid length 48"):
        list(iter_batches(batch))


def test_the_crc_covers_every_byte_after_it_and_none_before() -> None:
    batch = bytearray(batch_of(2, 0))
    crc = read_header(batch).crc
    for index in range(len(batch)):
        batch[index] ^= 0x55
        assert crc_matches(batch, crc) == (index < 21)
        batch[index] ^= 0x55
