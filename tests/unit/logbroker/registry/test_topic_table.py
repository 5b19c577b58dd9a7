"""Tables of topics, whose differences are found without a look at every topic."""

from uuid import UUID

import pytest

from logbroker.errors import InvalidTopic, TopicAlreadyExists
from logbroker.registry.topic import Topic
from logbroker.registry.topic_table import HISTORY_MIN, TopicIndex, TopicTable


def topic(name: str, number: int = 1, partitions: int = 1, broker: int = 0) -> Topic:
    return Topic(name, UUID(int=number), ((broker,),) * partitions, {})


MANY = TopicTable.of(topic(f"t{number}", number) for number in range(100))


def test_a_table_differs_from_an_earlier_one_in_the_changes_in_between() -> None:
    first = MANY.changed({"new": topic("new", 100)})
    second = first.changed({"t1": None})
    third = second.changed({"t2": topic("t2", 2, partitions=2)})
    assert list(third.changed_since(MANY)) == ["new", "t1", "t2"]
    assert list(third.changed_since(first)) == ["t1", "t2"]
    assert list(third.changed_since(third)) == []
    assert "t1" in first
    assert "t1" not in third
    assert "new" not in MANY
    assert third["t2"].partitions == 2


def test_a_change_that_was_dropped_may_only_add_names() -> None:
    first = TopicTable(MANY)
    first.changed({"dropped": topic("dropped", 100)})
    new = first.changed({"new": topic("new", 101)})
    assert list(new.changed_since(first)) == ["dropped", "new"]
    assert new.name_of(UUID(int=100)) is None


def test_tables_without_a_common_history_may_differ_in_every_topic() -> None:
    other = TopicTable.of([topic("other")])
    assert set(MANY.changed_since(other)) == {"other", *MANY}
    assert set(MANY.changed_since(MANY.without(["t3"]))) == set(MANY)


def test_a_topic_is_found_by_its_id_in_the_tables_that_have_it() -> None:
    again = MANY.changed({"t1": None}).changed({"t1": topic("t1", 1001)})
    assert (MANY.name_of(UUID(int=1)), MANY.name_of(UUID(int=1001))) == ("t1", None)
    assert (again.name_of(UUID(int=1)), again.name_of(UUID(int=1001))) == (None, "t1")
    assert again.without(["t1"]).name_of(UUID(int=1001)) is None


def test_a_long_history_is_replaced() -> None:
    table = TopicTable()
    for number in range(HISTORY_MIN + 10):
        table = table.changed({"t": topic("t", number)})
    assert table.history.length < 20
    assert table.name_of(UUID(int=HISTORY_MIN + 9)) == "t"
    assert len(table.history.names_by_id) < 20


def test_an_index_follows_new_changed_and_deleted_topics() -> None:
    index, table = TopicIndex(), TopicTable.of([topic("a.b"), topic("c", 2, partitions=3)])
    index.follow(table)
    assert index.load == {0: 4}
    with pytest.raises(TopicAlreadyExists):
        index.names.check("c")
    with pytest.raises(InvalidTopic, match=r"'a_b' collides with 'a.b'"):
        index.names.check("a_b")
    changes = {"a.b": None, "c": topic("c", 2, partitions=5), "d": topic("d", 3, broker=1)}
    index.follow(table.changed(changes))
    assert index.load == {0: 5, 1: 1}
    index.names.check("a_b")
    with pytest.raises(TopicAlreadyExists):
        index.names.check("d")


def test_an_index_knows_the_topic_that_replaced_another_with_a_colliding_name() -> None:
    for names in (("a.b", "a_b"), ("a_b", "a.b")):
        old, new = (topic(name, number) for number, name in enumerate(names))
        for later in (TopicTable.of([new]), TopicTable.of([old]).changed({old.name: None})):
            index = TopicIndex()
            index.follow(TopicTable.of([old]))
            index.follow(later.changed({new.name: new}))
            with pytest.raises(InvalidTopic, match="collides"):
                index.names.check(old.name)


def test_names_that_are_added_to_extended_names_are_new_only_there() -> None:
    index = TopicIndex()
    index.follow(MANY)
    wanted = index.names.extended()
    wanted.add("new")
    for name in ("new", "t1"):
        with pytest.raises(TopicAlreadyExists):
            wanted.check(name)
    index.names.check("new")
