from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.storage.offset_index import OffsetIndex
from logbroker.storage.time_index import TimeIndex
from tests.support.property_examples import examples
from tests.unit.logbroker.storage.storage_content import BASE_MS, OpenLog, append_all, batch


def filled_offset_index(path: Path, *entries: tuple[int, int]) -> OffsetIndex:
    path.touch()
    index = OffsetIndex(path, 1000)
    for offset, position in entries:
        index.append(offset, position)
    index.write()
    index.publish()
    return index


def test_entries_have_kafkas_bytes(tmp_path: Path) -> None:
    filled_offset_index(tmp_path / "o", (1007, 4200), (1300, 8500))
    assert (tmp_path / "o").read_bytes().hex() == "00000007000010680000012c00002134"
    (tmp_path / "t").touch()
    times = TimeIndex(tmp_path / "t", 1000)
    times.append_if_greater(1_700_000_000_000, 1007)
    times.write()
    assert (tmp_path / "t").read_bytes().hex() == "0000018bcfe5680000000007"


def test_entries_are_found_only_once_they_are_published(tmp_path: Path) -> None:
    index = filled_offset_index(tmp_path / "o", (1007, 4200))
    index.append(1300, 8500)
    assert index.position_at_or_before(1300) == 4200
    index.write()
    assert index.position_at_or_before(1300) == 4200
    index.publish()
    assert index.position_at_or_before(1300) == 8500


def test_undo_removes_written_entries_that_are_not_published(tmp_path: Path) -> None:
    index = filled_offset_index(tmp_path / "o", (1007, 4200))
    index.append(1300, 8500)
    index.write()
    index.append(1400, 9500)
    index.undo()
    assert (tmp_path / "o").stat().st_size == 8
    assert index.items() == [(1007, 4200)]


def test_an_entry_is_written_after_the_interval_and_times_only_if_greater(
    new_log: OpenLog,
) -> None:
    log = new_log()
    times = [BASE_MS, BASE_MS + 9, BASE_MS + 5, BASE_MS + 7, BASE_MS + 8, BASE_MS + 20]
    one = len(batch(b"x" * 2000, timestamps=[BASE_MS]))
    append_all(log, [batch(b"x" * 2000, timestamps=[time]) for time in times])
    assert 2 * one > 4096 > one
    segment = log.segments[0]
    assert segment.offset_index.items() == [(2, 2 * one), (4, 4 * one)]
    assert segment.time_index.items() == [(BASE_MS + 9, 1)]
    log.close()
    assert segment.time_index.items() == [(BASE_MS + 9, 1), (BASE_MS + 20, 5)]


ENTRIES = st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), min_size=1, max_size=30)


@examples(50)
@given(ENTRIES)
def test_searches_agree_with_a_walk_over_the_entries(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]
) -> None:
    offset, position, entries = 1000, 0, []
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        entries.append((offset, position))
    index = filled_offset_index(tmp_path_factory.mktemp("index") / "o", *entries)
    assert index.items() == entries
    assert index.last_position() == position
    for target in range(1000, offset + 2):
        found = max((place for end, place in entries if end <= target), default=0)
        assert index.position_at_or_before(target) == found
    for target in range(0, position + 2, 97):
        found = max((place for _, place in entries if place <= target), default=0)
        assert index.last_position_up_to(target) == found
