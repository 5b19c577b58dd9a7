"""Globs of event types."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.globs import GlobIndex, glob_matches
from tests.support.function_calls import calls_of


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


GLOBS = st.text("ab*?", min_size=1, max_size=5)


@given(st.lists(st.tuples(st.booleans(), GLOBS), max_size=20), st.text("ab", max_size=6))
def test_the_index_finds_the_globs_that_match(changes: list[tuple[bool, str]], text: str) -> None:
    index, globs = GlobIndex(), set[str]()
    for is_added, glob in changes:
        if is_added and glob not in globs:
            index.add(glob)
            globs.add(glob)
        elif not is_added and glob in globs:
            index.remove(glob)
            globs.remove(glob)
    assert sorted(index.match(text)) == sorted(each for each in globs if glob_matches(each, text))


def test_globs_with_another_prefix_or_suffix_are_not_compared() -> None:
    index = GlobIndex()
    for number in range(10_000):
        index.add(f"shop{number:05}.*")
        index.add(f"*.of{number:05}")
        index.add(f"order{number:05}")
    assert sorted(index.match("shop00017.of00018")) == ["*.of00018", "shop00017.*"]
    assert calls_of(lambda: list(index.match("shop00017.of00018"))) < 50
