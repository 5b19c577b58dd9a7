"""Forward and backward scans of a partition with missing offsets."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.log.browser.partition_scan import (
    BackwardScan,
    ForwardScan,
    PartitionScan,
    RangeRequest,
    RangeResult,
    RawRecord,
)

LOGS = st.sets(st.integers(0, 3_000), max_size=400).map(sorted)


def record(offset: int) -> RawRecord:
    return RawRecord(0, offset, offset, False, None, b"", ())


def read(offsets: Sequence[int], request: RangeRequest, most: int) -> RangeResult:
    """The result of a log that returns `most` records at a time."""
    inside = [each for each in offsets if request.start <= each < request.end]
    records_max = min(request.records_max, most)
    shown = inside[:records_max]
    position = shown[-1] + 1 if len(inside) > records_max else request.end
    return RangeResult([record(each) for each in shown], position)


def walked(scan: PartitionScan, offsets: Sequence[int], count: int, most: int) -> list[int]:
    """The first `count` records of the scan."""
    found: list[int] = []
    reads = 0
    while len(found) < count and (scan.head is not None or scan.needs_read):
        if scan.head is not None:
            found.append(scan.pop().offset)
            continue
        request = scan.next_request()
        scan.add_result(request, read(offsets, request, most))
        reads += 1
        assert reads < 10 * (count + 20), "it does not come to an end"
    return found


@given(LOGS, st.integers(0, 3_001), st.integers(1, 60), st.integers(1, 500))
def test_a_backward_scan_returns_every_record(
    offsets: list[int], end: int, count: int, most: int
) -> None:
    scan = BackwardScan(0, end, 8)
    below = [each for each in reversed(offsets) if each < end]
    found = walked(scan, offsets, count, most)
    assert found == below[:count]
    # The next scan continues where this one ended.
    again = BackwardScan(0, scan.position, 8)
    assert walked(again, offsets, count, most) == below[count : 2 * count]
    assert scan.is_done <= (len(below) <= count)


@given(LOGS, st.integers(0, 3_001), st.integers(1, 60), st.integers(1, 500))
def test_a_forward_scan_returns_every_record(
    offsets: list[int], start: int, count: int, most: int
) -> None:
    scan = ForwardScan(start, 3_001, 8)
    above = [each for each in offsets if each >= start]
    assert walked(scan, offsets, count, most) == above[:count]
    again = ForwardScan(scan.position, 3_001, 8)
    assert walked(again, offsets, count, most) == above[count : 2 * count]
    assert scan.is_done <= (len(above) <= count)


def test_a_wide_gap_needs_few_reads() -> None:
    scan = BackwardScan(0, 10**12, 8)
    reads = 0
    while scan.needs_read:
        request = scan.next_request()
        scan.add_result(request, read([5], request, 500))
        reads += 1
    assert scan.pop().offset == 5
    assert reads < 30


def test_a_dense_part_after_a_gap_is_not_read_completely() -> None:
    dense = range(1_000_000)
    scan = BackwardScan(0, 10**8, 8)
    records = reads = 0
    while scan.needs_read:
        request = scan.next_request()
        low, high = max(0, request.start), min(request.end, len(dense))
        shown = [record(each) for each in dense[low : min(high, low + request.records_max)]]
        is_whole = high - low <= request.records_max
        scan.add_result(
            request, RangeResult(shown, request.end if is_whole else shown[-1].offset + 1)
        )
        records += len(shown)
        reads += 1
    assert scan.pop().offset == 999_999
    assert reads < 100
    assert records < 20_000


def test_a_limited_scan_requests_one_record() -> None:
    down, up = BackwardScan(0, 100, 8), ForwardScan(0, 100, 8)
    down.limit_to_one()
    up.limit_to_one()
    assert down.next_request()[:2] == (99, 100)
    assert up.next_request().records_max == 1
