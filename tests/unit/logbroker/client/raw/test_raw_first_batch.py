"""What is wrong with the batch at an offset, and where the next one begins."""

import pytest

from logbroker.client.raw.parsing.first_batch import FirstBatch, check_first_batch
from logbroker.records.batch import CONTROL_FLAG, TRANSACTIONAL_FLAG, read_header
from logbroker.records.record import NewRecord, encode_batch
from logbroker.wire.fetch_client import AbortedTransaction
from tests.support.kafka.damaged_log import DAMAGES, Damage, flip_bit
from tests.support.kafka.record_batches import ABORT, LogRecord, batch_of, marker


def three_records(base_offset: int) -> bytearray:
    records = [NewRecord(1_000, b"key", b"value %d" % number) for number in range(3)]
    return bytearray(encode_batch(records, base_offset=base_offset))


def check(*batches: bytes | bytearray, offset: int = 10) -> FirstBatch:
    return check_first_batch(memoryview(b"".join(batches)), offset)


def test_an_intact_batch_has_no_problem() -> None:
    assert check(three_records(10), three_records(13)) == FirstBatch(None, 10, 13, 13, True)


def test_batches_below_the_offset_are_passed() -> None:
    found = check(three_records(10), three_records(13), three_records(16), offset=14)
    assert found == FirstBatch(None, 13, 16, 16, True)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_batch_ends_where_the_next_one_begins(damage: Damage) -> None:
    batch = three_records(10)
    damage(batch)
    found = check(batch, three_records(13))
    assert found.problem
    assert (found.following, found.has_records) == (13, False)


def test_without_a_next_batch_only_the_header_says_where_it_ends() -> None:
    batch = three_records(10)
    flip_bit(batch)
    found = check(batch)
    assert (found.problem, found.following, found.announced) == ("its CRC does not match", None, 13)


def test_every_truncation_is_a_problem() -> None:
    batch = three_records(10)
    for size in range(len(batch)):
        found = check(batch[:size])
        assert found.problem
        assert found.following is None


@pytest.mark.parametrize("length", [-1, 0, 48, 2**31 - 1])
def test_a_false_length_hides_the_next_batch(length: int) -> None:
    batch = three_records(10)
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    found = check(batch, three_records(13))
    assert found.problem
    assert (found.following, found.announced) == (None, 13)


def test_an_announced_end_below_the_offset_is_not_plausible() -> None:
    batch = three_records(20)
    batch[16] = 9
    assert check(batch, offset=10).announced is None


def test_markers_and_aborted_records_are_not_for_consumers() -> None:
    assert not check(marker(10, 7, ABORT)).has_records
    assert read_header(marker(10, 7, ABORT)).attributes & CONTROL_FLAG
    aborted = batch_of([LogRecord(0, 0)], base_offset=10, producer_id=7, flags=TRANSACTIONAL_FLAG)
    view = memoryview(aborted)
    assert check_first_batch(view, 10, []).has_records
    assert check_first_batch(view, 10, [AbortedTransaction(7, 10)]).has_records is False
    assert check_first_batch(view, 10, [AbortedTransaction(7, 11)]).has_records
