"""Going through a partition up and down, whatever offsets it has."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.log.browser.walks import Ascent, Descent, Probe, RawRecord, Stretch, Walk

LOGS = st.sets(st.integers(0, 3_000), max_size=400).map(sorted)


def record(offset: int) -> RawRecord:
    return RawRecord(0, offset, offset, False, None, b"", ())


def read(offsets: Sequence[int], probe: Probe, most: int) -> Stretch:
    """As a log answers that gives `most` records at a time."""
    inside = [each for each in offsets if probe.start <= each < probe.end]
    records_max = min(probe.records_max, most)
    shown = inside[:records_max]
    position = shown[-1] + 1 if len(inside) > records_max else probe.end
    return Stretch([record(each) for each in shown], position)


def walked(walk: Walk, offsets: Sequence[int], count: int, most: int) -> list[int]:
    """The first `count` that the walk comes to."""
    found: list[int] = []
    reads = 0
    while len(found) < count and (walk.head is not None or walk.is_lacking):
        if walk.head is not None:
            found.append(walk.take().offset)
            continue
        probe = walk.probe()
        walk.learn(probe, read(offsets, probe, most))
        reads += 1
        assert reads < 10 * (count + 20), "it does not come to an end"
    return found


@given(LOGS, st.integers(0, 3_001), st.integers(1, 60), st.integers(1, 500))
def test_going_down_meets_every_record_from_the_last(
    offsets: list[int], end: int, count: int, most: int
) -> None:
    walk = Descent(0, end, 8)
    below = [each for each in reversed(offsets) if each < end]
    found = walked(walk, offsets, count, most)
    assert found == below[:count]
    # What comes next goes on where this one ended.
    again = Descent(0, walk.position, 8)
    assert walked(again, offsets, count, most) == below[count : 2 * count]
    assert walk.is_over <= (len(below) <= count)


@given(LOGS, st.integers(0, 3_001), st.integers(1, 60), st.integers(1, 500))
def test_going_up_meets_every_record_from_the_first(
    offsets: list[int], start: int, count: int, most: int
) -> None:
    walk = Ascent(start, 3_001, 8)
    above = [each for each in offsets if each >= start]
    assert walked(walk, offsets, count, most) == above[:count]
    again = Ascent(walk.position, 3_001, 8)
    assert walked(again, offsets, count, most) == above[count : 2 * count]
    assert walk.is_over <= (len(above) <= count)


def test_a_wide_hole_is_crossed_in_a_few_reads() -> None:
    walk = Descent(0, 10**12, 8)
    reads = 0
    while walk.is_lacking:
        probe = walk.probe()
        walk.learn(probe, read([5], probe, 500))
        reads += 1
    assert walk.take().offset == 5
    assert reads < 30


def test_a_dense_part_behind_a_hole_is_found_without_being_read_whole() -> None:
    dense = range(1_000_000)
    walk = Descent(0, 10**8, 8)
    records = reads = 0
    while walk.is_lacking:
        probe = walk.probe()
        low, high = max(0, probe.start), min(probe.end, len(dense))
        shown = [record(each) for each in dense[low : min(high, low + probe.records_max)]]
        is_whole = high - low <= probe.records_max
        walk.learn(probe, Stretch(shown, probe.end if is_whole else shown[-1].offset + 1))
        records += len(shown)
        reads += 1
    assert walk.take().offset == 999_999
    assert reads < 100
    assert records < 20_000


def test_a_walk_that_is_humbled_asks_for_one_record() -> None:
    down, up = Descent(0, 100, 8), Ascent(0, 100, 8)
    down.humble()
    up.humble()
    assert down.probe()[:2] == (99, 100)
    assert up.probe().records_max == 1
