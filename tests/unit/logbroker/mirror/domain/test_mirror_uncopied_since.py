"""How long the oldest uncopied record has been at the source."""

from hypothesis import given
from hypothesis import strategies as st

from logbroker.mirror.domain.partitions import AGE_EXACTNESS, UncopiedSince
from logbroker.mirror.metrics import MirrorCollector, MirrorCounts


def test_without_lag_there_is_no_age() -> None:
    uncopied = UncopiedSince()
    for now_s in range(5):
        uncopied.update(now_s, 100, 100)
        assert uncopied.since_s is None


def test_the_oldest_record_counts_and_not_the_lag() -> None:
    uncopied = UncopiedSince()
    # A constant lag of 10, always moving.
    for now_s in range(100):
        uncopied.update(now_s, 10 * now_s, 10 * now_s + 10)
        assert uncopied.since_s == now_s
    uncopied.update(100.0, 990, 1_010)
    uncopied.update(101.0, 995, 2_000)
    assert uncopied.since_s == 99.0
    uncopied.update(102.0, 1_010, 2_000)
    assert uncopied.since_s == 101.0
    uncopied.update(103.0, 2_000, 2_000)
    assert uncopied.since_s is None


def test_a_long_stall_needs_bounded_memory() -> None:
    uncopied = UncopiedSince()
    for now_s in range(100_000):
        uncopied.update(now_s, 0, now_s + 1)
        assert uncopied.since_s == 0
    assert len(uncopied._ends) < 400
    uncopied.update(100_000, 50_000, 100_000)
    assert uncopied.since_s is not None
    # Known less exactly, and never too young.
    assert 50_000 * (1 - 1 / AGE_EXACTNESS) - 1 <= uncopied.since_s <= 50_000
    # The inexact part is soon over.
    uncopied.update(100_001, 100_000, 100_002)
    uncopied.update(100_002, 100_002, 100_003)
    assert uncopied.since_s == 100_002


def test_a_recreated_topic_starts_again() -> None:
    uncopied = UncopiedSince()
    uncopied.update(1.0, 10, 1_000)
    uncopied.update(2.0, 0, 3)
    assert uncopied.since_s == 2.0
    uncopied.update(3.0, 3, 3)
    assert uncopied.since_s is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=200))
def test_no_age_is_too_low(steps: list[tuple[int, int]]) -> None:
    uncopied, position, seen = UncopiedSince(), 0, list[int]()
    for now_s, (copied, written) in enumerate(steps):
        seen += [now_s] * written
        position = min(position + copied, len(seen))
        uncopied.update(now_s, position, len(seen))
        if position == len(seen):
            assert uncopied.since_s is None
        else:
            assert uncopied.since_s is not None
            assert uncopied.since_s <= seen[position]


def test_the_lag_of_a_topic_is_that_of_its_worst_partition() -> None:
    counts = MirrorCounts()
    for topic in ("slow", "level"):
        counts.of_topic(topic)
    for partition, now_s in enumerate((20.0, 10.0)):
        counts.uncopied_of(("slow", partition)).update(now_s, 0, 1)
    counts.uncopied_of(("level", 0)).update(10.0, 1, 1)
    shown = {
        sample.labels["topic"]: sample.value
        for family in MirrorCollector(counts, lambda: 100.0).collect()
        for sample in family.samples
        if sample.name == "logbroker_mirror_lag_seconds"
    }
    assert shown == {"slow": 90.0, "level": 0.0}
