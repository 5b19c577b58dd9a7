"""How long the oldest record has been waiting that is not copied."""

from hypothesis import given
from hypothesis import strategies as st

from logbroker.mirror.metrics import MirrorCollector, MirrorCounts
from logbroker.mirror.uncopied import EXACTNESS, UncopiedSince


def test_what_is_level_waits_for_nothing_however_old_its_records_are() -> None:
    uncopied = UncopiedSince()
    for now_s in range(5):
        uncopied.look(now_s, 100, 100)
        assert uncopied.since_s is None


def test_the_oldest_record_counts_and_not_the_lag() -> None:
    uncopied = UncopiedSince()
    # Always 10 behind, and always moving.
    for now_s in range(100):
        uncopied.look(now_s, 10 * now_s, 10 * now_s + 10)
        assert uncopied.since_s == now_s
    uncopied.look(100.0, 990, 1_010)
    uncopied.look(101.0, 995, 2_000)
    assert uncopied.since_s == 99.0
    uncopied.look(102.0, 1_010, 2_000)
    assert uncopied.since_s == 101.0
    uncopied.look(103.0, 2_000, 2_000)
    assert uncopied.since_s is None


def test_nothing_copied_for_long_is_that_old_in_bounded_memory() -> None:
    uncopied = UncopiedSince()
    for now_s in range(100_000):
        uncopied.look(now_s, 0, now_s + 1)
        assert uncopied.since_s == 0
    assert len(uncopied._looks) < 400
    uncopied.look(100_000, 50_000, 100_000)
    assert uncopied.since_s is not None
    # Known less exactly, and never as younger than it is.
    assert 50_000 * (1 - 1 / EXACTNESS) - 1 <= uncopied.since_s <= 50_000
    # What it knew less exactly is soon over.
    uncopied.look(100_001, 100_000, 100_002)
    uncopied.look(100_002, 100_002, 100_003)
    assert uncopied.since_s == 100_002


def test_a_topic_made_anew_begins_anew() -> None:
    uncopied = UncopiedSince()
    uncopied.look(1.0, 10, 1_000)
    uncopied.look(2.0, 0, 3)
    assert uncopied.since_s == 2.0
    uncopied.look(3.0, 3, 3)
    assert uncopied.since_s is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=200))
def test_no_record_is_younger_than_it_is(steps: list[tuple[int, int]]) -> None:
    uncopied, position, seen = UncopiedSince(), 0, list[int]()
    for now_s, (copied, written) in enumerate(steps):
        seen += [now_s] * written
        position = min(position + copied, len(seen))
        uncopied.look(now_s, position, len(seen))
        if position == len(seen):
            assert uncopied.since_s is None
        else:
            assert uncopied.since_s is not None
            assert uncopied.since_s <= seen[position]


def test_a_topic_is_as_far_behind_as_its_worst_partition() -> None:
    counts = MirrorCounts()
    for topic in ("slow", "level"):
        counts.of_topic(topic)
    for partition, now_s in enumerate((20.0, 10.0)):
        counts.uncopied_of(("slow", partition)).look(now_s, 0, 1)
    counts.uncopied_of(("level", 0)).look(10.0, 1, 1)
    shown = {
        sample.labels["topic"]: sample.value
        for family in MirrorCollector(counts, lambda: 100.0).collect()
        for sample in family.samples
        if sample.name == "logbroker_mirror_behind_seconds"
    }
    assert shown == {"slow": 90.0, "level": 0.0}
