import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.glob_overlap import globs_overlap
from app.domain.globs import glob_matches

TEXTS = ["".join(each) for length in range(6) for each in itertools.product("ab", repeat=length)]
"""Two globs of up to three characters that overlap at all match one of these."""

globs = st.text("ab?*", max_size=3)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("*", "follow.created", True),
        ("follow.*", "follow.created", True),
        ("follow.*", "dm.*", False),
        ("*.created", "follow.*", True),
        ("*.created", "*.deleted", False),
        ("a*b", "ab", True),
        ("a*b", "a", False),
        ("a?c", "?b?", True),
        ("a?", "a", False),
        ("ab*", "a", False),
        ("", "*", True),
        ("", "?", False),
    ],
)
def test_globs_overlap(one: str, other: str, overlap: bool) -> None:
    assert globs_overlap(one, other) is overlap
    assert globs_overlap(other, one) is overlap


@given(globs, globs)
def test_globs_overlap_if_both_match_one_text(one: str, other: str) -> None:
    both = any(glob_matches(one, text) and glob_matches(other, text) for text in TEXTS)
    assert globs_overlap(one, other) is both


def test_globs_with_many_stars_take_little_time() -> None:
    # A search that goes back to every star would never end.
    assert not globs_overlap("*a" * 127 + "b", "?" * 255 + "a")
