"""Which topics the patterns of a mirror match."""

import pytest

from logbroker.mirror.domain.topic_selection import (
    PATTERN_CHARS_MAX,
    TopicSelection,
    pattern_problems,
)


def test_the_whole_name_matches() -> None:
    selection = TopicSelection(["^delivery_[a-z]+", "^[a-c]"])
    there = ["delivery_log", "delivery_log_2", "my_delivery_log", "delivery_", "a", "ab", "d"]
    assert selection.matching(there) == {"delivery_log": "^delivery_[a-z]+", "a": "^[a-c]"}


def test_internal_topics_never_match() -> None:
    there = ["__consumer_offsets", "__x", "_schemas", "_schemas_2", "_x", "audit"]
    assert list(TopicSelection(["^.*"]).matching(there)) == ["_schemas_2", "_x", "audit"]


def test_a_listed_name_does_not_match_again() -> None:
    selection = TopicSelection(["a.c", "^a.*", "^.*c"])
    assert selection.names == ["a.c"]
    assert selection.matching(["a.c", "abc", "bc"]) == {"abc": "^a.*", "bc": "^.*c"}
    assert selection.has_patterns
    assert not TopicSelection(["a.c"]).has_patterns
    assert TopicSelection(["a.c"]).matching(["a.c", "abc"]) == {}


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("^(a", "invalid pattern '^(a': not a regular expression: missing )"),
        ("^a{99999999999}", "not a regular expression: the repetition number is too large"),
        ("^" + "a" * PATTERN_CHARS_MAX, "pattern too long: 250 characters, max 249"),
        ("^" + "(" * 100 + "a" + ")" * 100, None),
    ],
)
def test_a_pattern_is_short_and_compiles(pattern: str, problem: str | None) -> None:
    problems = list(pattern_problems(pattern))
    assert len(problems) == (problem is not None)
    assert all(problem in each for each in problems if problem)
