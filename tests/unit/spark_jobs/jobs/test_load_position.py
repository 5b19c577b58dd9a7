import json
from uuid import UUID

import pytest

from logbroker.client.raw import TopicPartition
from spark_jobs.errors import CorruptTable
from spark_jobs.jobs.load_position import (
    advance_position,
    read_position,
    read_times,
    write_position,
)
from spark_jobs.log.planning import TopicPosition

ONE, OTHER = UUID(int=1), UUID(int=2)


def test_a_position_round_trips() -> None:
    position = {
        "orders": TopicPosition(ONE, {0: 5, 10: 2**62}),
        "audit": TopicPosition(None, {}),
        "cut": TopicPosition(ONE, {0: 5, 1: 7, 10: 1}, 2, frozenset({10, 1})),
    }
    times_ms = {"orders": 7, "audit": 8, "cut": 9}
    written = json.loads(json.dumps(write_position(position, times_ms)))
    assert read_position(written) == position
    assert read_times(written) == times_ms


def test_a_position_names_its_topics_and_partitions_in_order() -> None:
    position = {"b": TopicPosition(ONE, {10: 1, 9: 2}), "a": TopicPosition(None, {0: 3})}
    assert json.dumps(write_position(position, {"a": 5, "b": 6})) == (
        '{"topics": {"a": {"id": null, "offsets": {"0": 3}, "asOfMs": 5}, '
        '"b": {"id": "00000000-0000-0000-0000-000000000001", "offsets": {"9": 2, "10": 1}, '
        '"asOfMs": 6}}}'
    )


def test_an_empty_table_has_no_position() -> None:
    assert read_position({}) == {}
    assert read_times({}) == {}


@pytest.mark.parametrize(
    "document",
    [
        {"source": {"uri": "/t", "version": 3}},
        {"topics": []},
        {"topics": {"a": {"id": "?", "offsets": {}}}},
        {"topics": {"a": {"offsets": {}}}},
        {"topics": {"a": {"id": None, "offsets": [1]}}},
        {"topics": {"a": {"id": None, "offsets": {"x": 1}}}},
        {"topics": {"a": {"id": None, "offsets": {}, "cuts": "x"}}},
        {"topics": {"a": {"id": None, "offsets": {}, "gone": 3}}},
        {"topics": {"a": 3}},
        {"job": "decode", "topics": {}},
    ],
)
def test_a_load_rejects_the_position_of_another_job(document: dict[str, object]) -> None:
    with pytest.raises(CorruptTable, match="position of a load"):
        read_position(document)


def test_a_job_rejects_the_position_of_a_load() -> None:
    position = {"orders": TopicPosition(ONE, {0: 5})}
    assert read_position(write_position(position, {"orders": 7}, "decode"), "decode") == position
    with pytest.raises(CorruptTable, match="position of decode: the table belongs to another job"):
        read_position(write_position(position, {"orders": 7}), "decode")
    assert read_position({}, "decode") == {}


def test_unread_topics_keep_their_position() -> None:
    before = {"a": TopicPosition(ONE, {0: 5, 1: 6}), "b": TopicPosition(OTHER, {0: 7})}
    after = advance_position(before, {"a": TopicPosition(ONE, {1: 9, 2: 1})})
    assert after == {"a": TopicPosition(ONE, {0: 5, 1: 9, 2: 1}), "b": TopicPosition(OTHER, {0: 7})}


def test_a_recreated_topic_has_only_its_present_partitions() -> None:
    before = {"a": TopicPosition(ONE, {0: 5, 1: 6})}
    assert advance_position(before, {"a": TopicPosition(OTHER, {0: 2})}) == {
        "a": TopicPosition(OTHER, {0: 2})
    }


@pytest.mark.parametrize("topic_id", [ONE, None])
def test_a_position_counts_truncations(topic_id: UUID | None) -> None:
    position = {"a": TopicPosition(topic_id, {0: 10, 1: 3})}
    for end, cuts in ((5, 1), (12, 1), (12, 1), (11, 2)):
        position = advance_position(position, {"a": TopicPosition(topic_id, {0: end})})
        assert position == {"a": TopicPosition(topic_id, {0: end, 1: 3}, cuts)}


def test_missing_partitions_are_recorded_until_they_return() -> None:
    before = {"a": TopicPosition(ONE, {0: 5, 1: 6}), "b": TopicPosition(ONE, {0: 7})}
    gone = [TopicPartition("a", 0), TopicPartition("a", 1)]
    after = advance_position(before, {"b": TopicPosition(ONE, {0: 8})}, gone)
    assert after == {
        "a": TopicPosition(ONE, {0: 5, 1: 6}, gone=frozenset({0, 1})),
        "b": TopicPosition(ONE, {0: 8}),
    }
    assert advance_position(after, {}) == after
    back = advance_position(after, {"a": TopicPosition(ONE, {0: 6})})["a"]
    assert back == TopicPosition(ONE, {0: 6, 1: 6}, gone=frozenset({1}))
    recreated = TopicPosition(OTHER, {0: 1})
    assert advance_position(after, {"a": recreated})["a"] == recreated
