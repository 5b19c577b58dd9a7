"""Globs of event types."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.globs import glob_matches


@pytest.mark.parametrize(
    ("glob", "text", "fits"),
    [
        ("*", "", True),
        ("", "", True),
        ("", "a", False),
        ("follow.*", "follow.created", True),
        ("follow.*", "follow.", True),
        ("follow.*", "follow", False),
        ("follow.*", "unfollow.created", False),
        ("*.created", "follow.created", True),
        ("*.created", "follow.created.again", False),
        ("follow.create?", "follow.created", True),
        ("follow.create?", "follow.create", False),
        ("Follow.*", "follow.created", False),
        ("follow.[cd]*", "follow.created", False),
        ("a.c", "abc", False),
        ("*a*b", "aab", True),
        ("**", "x", True),
    ],
)
def test_a_glob_matches_a_whole_type(glob: str, text: str, fits: bool) -> None:
    assert glob_matches(glob, text) is fits


@given(st.text("ab*?", max_size=8), st.text("ab*?", max_size=10))
def test_a_glob_matches_like_its_regular_expression(glob: str, text: str) -> None:
    pattern = re.escape(glob).replace(r"\*", ".*").replace(r"\?", ".")
    assert glob_matches(glob, text) == bool(re.fullmatch(pattern, text, re.DOTALL))


def test_many_stars_take_little_time() -> None:
    # As a regular expression this would not end within the age of the earth.
    assert not glob_matches("*a" * 100 + "*b", "a" * 256)
