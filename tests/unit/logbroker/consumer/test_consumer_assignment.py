from hypothesis import given
from hypothesis import strategies as st

from logbroker.consumer.rebalance.assignment import GroupView, assign_partitions, thread_of

topics = st.sampled_from(["clicks", "views", "orders"])
views = st.builds(
    GroupView,
    st.dictionaries(
        st.text("abc-", min_size=1, max_size=4),
        st.dictionaries(topics, st.integers(1, 12), max_size=3),
        max_size=6,
    ),
    st.dictionaries(topics, st.integers(0, 40).map(range), max_size=3),
)


def test_partitions_that_divide_evenly_are_contiguous_ranges() -> None:
    view = GroupView({"b": {"t": 1}, "a": {"t": 1}}, {"t": range(4)})
    assert assign_partitions(view, "a") == {("t", 0): "a-0", ("t", 1): "a-0"}
    assert assign_partitions(view, "b") == {("t", 2): "b-0", ("t", 3): "b-0"}


def test_the_first_threads_have_the_ones_that_are_left_over() -> None:
    # Worked by hand: 8 partitions over 3 threads are 3, 3 and 2.
    view = GroupView({"a": {"t": 2}, "b": {"t": 1}}, {"t": range(8)})
    assert list(assign_partitions(view, "a").values()) == 3 * ["a-0"] + 3 * ["a-1"]
    assert assign_partitions(view, "b") == {("t", 6): "b-0", ("t", 7): "b-0"}


def test_threads_beyond_the_partitions_have_none() -> None:
    view = GroupView({"a": {"t": 1}, "b": {"t": 3}}, {"t": range(2)})
    assert assign_partitions(view, "a") == {("t", 0): "a-0"}
    assert assign_partitions(view, "b") == {("t", 1): "b-0"}


def test_partitions_sort_as_numbers_whatever_order_they_came_in() -> None:
    view = GroupView({"a": {"t": 1}, "b": {"t": 1}}, {"t": [10, 9, 2, 1]})
    assert list(assign_partitions(view, "a")) == [("t", 1), ("t", 2)]


def test_an_unknown_topic_has_no_partitions() -> None:
    assert assign_partitions(GroupView({"a": {"t": 1}}, {}), "a") == {}


def test_a_consumer_that_is_not_registered_reads_nothing() -> None:
    assert assign_partitions(GroupView({"a": {"t": 1}}, {"t": range(3)}), "b") == {}


@given(views)
def test_every_partition_of_a_topic_that_is_read_comes_up_exactly_once(view: GroupView) -> None:
    given_out = [tp for each in view.consumers for tp in assign_partitions(view, each)]
    read = {topic for subscription in view.consumers.values() for topic in subscription}
    wanted = {
        (topic, partition)
        for topic, numbers in view.partitions.items()
        if topic in read
        for partition in numbers
    }
    assert sorted(given_out) == sorted(wanted)


@given(views)
def test_threads_of_a_topic_differ_by_one_partition_at_most(view: GroupView) -> None:
    for topic in view.partitions:
        shares = {
            thread_of(consumer, stream): 0
            for consumer, subscription in view.consumers.items()
            for stream in range(subscription.get(topic, 0))
        }
        for consumer in view.consumers:
            for (name, _), thread in assign_partitions(view, consumer).items():
                if name == topic:
                    shares[thread] += 1
        assert not shares or max(shares.values()) - min(shares.values()) <= 1
