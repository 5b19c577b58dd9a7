import pytest

from logbroker.errors import InvalidTopic
from logbroker.registry.topic import check_collision, check_topic_name


@pytest.mark.parametrize("name", ["a", "delivery_log", "a.b-C_9", "...", "x" * 249])
def test_a_name_of_kafkas_letters_is_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "../x", "ä", "a\n", "a\0", "x" * 250, "a:b"]
)
def test_any_other_name_is_refused_with_the_rule(name: str) -> None:
    with pytest.raises(InvalidTopic, match="1 to 249 of the characters"):
        check_topic_name(name)


def test_names_that_differ_in_dot_and_underscore_alone_collide() -> None:
    with pytest.raises(InvalidTopic, match=r"'a_b.c' collides with 'a.b_c'"):
        check_collision("a_b.c", ["other", "a.b_c"])


def test_a_name_does_not_collide_with_itself_or_with_others() -> None:
    check_collision("a.b", ["a.b", "a-b", "ab", "a.b.c"])
