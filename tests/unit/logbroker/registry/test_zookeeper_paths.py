import pytest
from hypothesis import given
from hypothesis import strategies as st

from logbroker.registry.zookeeper import paths


@pytest.mark.parametrize(
    ("group_id", "path"),
    [
        ("readers", "/consumers/readers"),
        ("my group:2@x", "/consumers/my group:2@x"),
        ("a/b", "/consumers/a%2Fb"),
        ("50%", "/consumers/50%25"),
        (".", "/consumers/%2E"),
        ("..", "/consumers/%2E%2E"),
        ("...", "/consumers/..."),
        ("ä\n", "/consumers/%C3%A4%0A"),
        ("", "/consumers/%"),
    ],
)
def test_a_group_has_its_own_name_where_a_node_can_have_it(group_id: str, path: str) -> None:
    assert paths.group(group_id) == path


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_a_name_is_found_again_in_its_node(name: str) -> None:
    node = paths.node_name(name)
    assert paths.name_of_node(node) == name
    assert "/" not in node
    assert node not in (".", "..")
    assert node.isascii()
    assert node.isprintable()


@pytest.mark.parametrize("node", ["50%", "%2f", "%41", "%ff", "ä"])
def test_a_node_that_was_named_otherwise_has_no_name(node: str) -> None:
    assert paths.name_of_node(node) is None


def test_the_paper_and_kafka_find_everything_where_they_look_for_it() -> None:
    assert paths.broker(7) == "/brokers/ids/7"
    assert paths.topic("t") == "/brokers/topics/t"
    assert paths.topic_config("t") == "/config/topics/t"
    assert paths.consumer_ids("g") == "/consumers/g/ids"
    assert paths.owners("g", "t") == "/consumers/g/owners/t"
    assert paths.offset("g", "t", 3) == "/consumers/g/offsets/t/3"
