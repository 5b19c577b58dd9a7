from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription

from logbroker.groups.member import subscribed_topics


def subscription(topics: list[str], version: int) -> bytes:
    message = ConsumerProtocolSubscription(
        version=version,
        topics=topics,
        user_data=b"of the assignor",
        owned_partitions=[],
        generation_id=1,
        rack_id="here",
    )
    return bytes(message.encode())


@given(st.lists(st.text(max_size=5), max_size=4), st.integers(0, 3))
def test_the_topics_of_a_clients_subscription_are_found(topics: list[str], version: int) -> None:
    assert subscribed_topics(subscription(topics, version)) == frozenset(topics)


@given(st.lists(st.text(min_size=1, max_size=5), max_size=3), st.integers(0, 3))
def test_a_truncated_subscription_is_invalid(topics: list[str], version: int) -> None:
    whole = subscription(topics, version)
    end = 6 + sum(2 + len(topic.encode()) for topic in topics)
    assert all(subscribed_topics(whole[:cut]) is None for cut in range(end))
    assert subscribed_topics(whole[:end]) == frozenset(topics)


@given(st.binary(max_size=40))
def test_any_bytes_are_a_subscription_or_none(data: bytes) -> None:
    topics = subscribed_topics(data)
    assert topics is None or all(topic.encode() in data for topic in topics)


def test_a_hostile_count_ends_with_the_bytes() -> None:
    assert subscribed_topics(b"\0\0\x7f\xff\xff\xff" + 10 * b"\0\0") is None
