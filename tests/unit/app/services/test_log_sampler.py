"""What is sampled of a log with many topics and groups."""

from app.domain.log_samples import ALL_GROUPS, ALL_TOPICS, LogSample, Series, SeriesKind
from app.log.inspection import Gap, Group, GroupPage, Topic, TopicPage
from app.log.topics import EVENTS
from app.services.log_sampler import TOPICS_SAMPLED_MAX, group_samples, topic_samples

MINUTE_MS = 1_800_000_000_000


def topic(name: str, written: int | None, size: int | None = 10) -> Topic:
    return Topic(name, 1, 0, 0, written, size, None, written)


def group(name: str, lag: int | None) -> Group:
    return Group(name, "Stable", "range", 1, 1, 1, lag, False, None)


def topic_named(name: str) -> Series:
    return Series(SeriesKind.TOPIC, name)


def group_named(name: str) -> Series:
    return Series(SeriesKind.GROUP, name)


def test_topics_and_their_sum() -> None:
    page = TopicPage((topic("a", 5), topic("b", 7)), 2, None, ())
    assert topic_samples(page, MINUTE_MS) == {
        topic_named("a"): LogSample(MINUTE_MS, 5, 10),
        topic_named("b"): LogSample(MINUTE_MS, 7, 10),
        ALL_TOPICS: LogSample(MINUTE_MS, 12, 20),
    }


def test_there_is_no_sum_without_each_topic() -> None:
    page = TopicPage((topic("a", 5), topic("offline", None)), 2, None, ())
    assert topic_samples(page, MINUTE_MS) == {topic_named("a"): LogSample(MINUTE_MS, 5, 10)}
    part = TopicPage((topic("a", 5),), 1_001, "a", ())
    assert ALL_TOPICS not in topic_samples(part, MINUTE_MS)


def test_the_sum_of_sizes_is_unknown_without_each_size() -> None:
    page = TopicPage((topic("a", 5), topic("b", 7, None)), 2, None, ())
    assert topic_samples(page, MINUTE_MS)[ALL_TOPICS] == LogSample(MINUTE_MS, 12, None)


def test_the_topics_with_most_messages_and_those_of_the_live_path_are_sampled() -> None:
    others = [topic(f"t{number:03}", 10 * number) for number in range(TOPICS_SAMPLED_MAX + 10)]
    page = TopicPage((topic(EVENTS, 0), *others), len(others) + 1, None, ())
    found = topic_samples(page, MINUTE_MS)
    assert len(found) == TOPICS_SAMPLED_MAX + 1
    assert {topic_named(EVENTS), topic_named("t109"), ALL_TOPICS} <= found.keys()
    assert topic_named("t010") not in found
    assert found[ALL_TOPICS].value == sum(each.written or 0 for each in others)


def test_groups_and_the_sum_of_their_lags() -> None:
    page = GroupPage((group("a", 5), group("idle", None), group("b", 6)), 3, None, ())
    assert group_samples(page, MINUTE_MS) == {
        group_named("a"): LogSample(MINUTE_MS, 5),
        group_named("b"): LogSample(MINUTE_MS, 6),
        ALL_GROUPS: LogSample(MINUTE_MS, 11),
    }


def test_there_is_no_sum_of_lags_if_some_are_missing() -> None:
    gap = Gap("lag", "no answer in time")
    page = GroupPage((group("a", 5), group("b", None)), 2, None, (gap,))
    assert group_samples(page, MINUTE_MS) == {group_named("a"): LogSample(MINUTE_MS, 5)}
    assert ALL_GROUPS not in group_samples(GroupPage((group("a", 5),), 101, None, ()), MINUTE_MS)
