"""The compact set of offsets: exact, and bounded."""

from hypothesis import given
from hypothesis import strategies as st

from app.domain.offset_set import OffsetSet

OFFSETS = st.one_of(st.integers(0, 6_000), st.integers(0, 2**62))


@given(st.lists(OFFSETS), st.lists(OFFSETS))
def test_the_set_contains_exactly_the_added_offsets(added: list[int], others: list[int]) -> None:
    offsets = OffsetSet()
    assert all(offsets.add(offset) for offset in added)
    for offset in [*added, *others]:
        assert (offset in offsets) == (offset in set(added))
        assert (offset + 1 in offsets) == (offset + 1 in set(added))


def test_a_full_set_rejects_further_offsets() -> None:
    offsets = OffsetSet(pages_max=1)
    assert offsets.add(5)
    assert offsets.add(2_047)
    assert not offsets.is_full
    assert not offsets.add(2_048)
    assert 2_048 not in offsets
    assert offsets.add(6)
    assert offsets.is_full
