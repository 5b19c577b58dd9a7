"""Which topics a mirror's patterns choose, and which it takes by their names alone."""

import pytest

from logbroker.mirror.topic_choice import PATTERN_CHARS_MAX, TopicChoice, pattern_problems


def test_the_whole_name_matches() -> None:
    choice = TopicChoice(["^delivery_[a-z]+", "^[a-c]"])
    there = ["delivery_log", "delivery_log_2", "my_delivery_log", "delivery_", "a", "ab", "d"]
    assert choice.found(there) == {"delivery_log": "^delivery_[a-z]+", "a": "^[a-c]"}


def test_what_is_a_systems_own_is_never_found() -> None:
    there = ["__consumer_offsets", "__x", "_schemas", "_schemas_2", "_x", "audit"]
    assert list(TopicChoice(["^.*"]).found(there)) == ["_schemas_2", "_x", "audit"]


def test_a_name_is_a_name_and_is_not_found_again() -> None:
    choice = TopicChoice(["a.c", "^a.*", "^.*c"])
    assert choice.names == ["a.c"]
    assert choice.found(["a.c", "abc", "bc"]) == {"abc": "^a.*", "bc": "^.*c"}
    assert choice.has_patterns
    assert not TopicChoice(["a.c"]).has_patterns
    assert TopicChoice(["a.c"]).found(["a.c", "abc"]) == {}


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("^(a", "pattern is '^(a'; allowed is a regular expression: missing )"),
        ("^a{99999999999}", "allowed is a regular expression: the repetition number is too large"),
        ("^" + "a" * PATTERN_CHARS_MAX, "pattern has 250 characters; allowed are 249"),
        ("^" + "(" * 100 + "a" + ")" * 100, None),
    ],
)
def test_a_pattern_is_short_and_compiles(pattern: str, problem: str | None) -> None:
    told = list(pattern_problems(pattern))
    assert len(told) == (problem is not None)
    assert all(problem in each for each in told if problem)
