"""What may be committed, and which partitions wait."""

from hypothesis import given
from hypothesis import strategies as st

from logbroker.mirror.held import HOLD_MAX_S, HOLD_S, HeldPartitions
from logbroker.mirror.metrics import MirrorCounts
from logbroker.mirror.progress import PartitionProgress
from logbroker.mirror.sender import KNOWN_S, Lane

PLACE = ("topic", 0)


def test_a_position_is_not_known_before_the_first_record() -> None:
    progress = PartitionProgress(None)
    assert progress.position is None
    progress.skip_to(7)
    assert progress.position == 7


@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=20).flatmap(
        lambda gaps: st.tuples(st.just(gaps), st.permutations(range(len(gaps))))
    )
)
def test_nothing_is_committed_above_what_is_still_on_its_way(
    shape: tuple[list[int], list[int]],
) -> None:
    gaps, order = shape
    offsets = [sum(gaps[: place + 1]) for place in range(len(gaps))]
    progress = PartitionProgress(0)
    for offset in offsets:
        progress.send(offset)
    left = set(offsets)
    for place in order:
        assert progress.position == min(left)
        progress.settle(offsets[place])
        left.remove(offsets[place])
    assert progress.is_level
    assert progress.position == offsets[-1] + 1


def test_what_is_passed_over_waits_for_what_stands_before_it() -> None:
    progress = PartitionProgress(3)
    progress.send(3)
    progress.skip_to(5)
    assert progress.position == 3
    progress.settle(3)
    assert progress.position == 5


def test_the_first_record_goes_alone_and_so_does_one_after_a_silence() -> None:
    lane = Lane(*PLACE, 0, MirrorCounts())
    now_s = 1_000_000.0
    assert lane.has_room(now_s)
    lane.progress.send(0)
    assert not lane.has_room(now_s)
    lane.progress.settle(0)
    lane.acknowledged_s = now_s
    lane.progress.send(1)
    assert lane.has_room(now_s + KNOWN_S - 1)
    assert not lane.has_room(now_s + KNOWN_S)
    lane.progress.settle(1)
    assert lane.has_room(now_s + KNOWN_S)


def test_a_partition_that_is_refused_again_is_held_back_longer() -> None:
    held = HeldPartitions()
    assert not held.is_held(PLACE, 0.0)
    times = [held.hold(PLACE, 0.0, has_moved=False) for _ in range(8)]
    assert times[:3] == [HOLD_S, 2 * HOLD_S, 4 * HOLD_S]
    assert times[-1] == HOLD_MAX_S
    assert held.is_held(PLACE, HOLD_MAX_S - 0.1)
    assert not held.is_held(PLACE, HOLD_MAX_S)
    assert not held.is_held(("topic", 1), 0.0)


def test_a_partition_that_has_moved_begins_at_the_shortest_time_again() -> None:
    held = HeldPartitions()
    held.hold(PLACE, 0.0, has_moved=False)
    held.hold(PLACE, 0.0, has_moved=False)
    assert held.hold(PLACE, 0.0, has_moved=True) == HOLD_S
