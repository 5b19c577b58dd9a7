"""Where windows lie, asked of a real broker: topics, look-ups by time, retention."""

import asyncio
from collections.abc import Sequence

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from app.domain.minute_index import WindowNotes
from app.domain.model import OffsetRange, Window
from app.log.errors import LogUnavailable, WindowNotRetained
from app.log.event import NewEvent
from app.log.history import LogHistory
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, EVENTS, ensure_topics
from logbroker.client.partitioner import partition_for_key
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S

PARTITIONS = 3
KEY = "wh_1"
PARTITION = partition_for_key(KEY.encode(), PARTITIONS)
DAY_MS = 86_400_000


@pytest.fixture
def servers(broker: BrokerProcess) -> str:
    ensure_topics(broker.bootstrap_servers, partitions=PARTITIONS, retention_ms=6 * DAY_MS)
    return broker.bootstrap_servers


@pytest.fixture
def history(servers: str) -> LogHistory:
    return LogHistory(servers)


def publish(servers: str, times_ms: Sequence[int]) -> None:
    events = [NewEvent(KEY, f"evt_{n}", "t", time_ms, b"{}") for n, time_ms in enumerate(times_ms)]

    async def scenario() -> None:
        async with EventPublisher(servers, origin="here", server="test") as publisher:
            await publisher.publish(DELIVERY_LOG, events)

    asyncio.run(scenario())


def test_topics_are_made_once_and_kept_as_they_are(servers: str) -> None:
    ensure_topics(servers, partitions=7, retention_ms=DAY_MS)
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=DEADLINE_S).topics
    assert {name: len(topics[name].partitions) for name in (EVENTS, DELIVERY_LOG)} == {
        EVENTS: PARTITIONS,
        DELIVERY_LOG: PARTITIONS,
    }


def test_topics_of_a_log_that_is_not_there_cannot_be_made() -> None:
    with pytest.raises(LogUnavailable):
        ensure_topics("127.0.0.1:1", partitions=1, retention_ms=DAY_MS, timeout_s=0.5)


def test_a_window_is_found_to_the_record(servers: str, history: LogHistory) -> None:
    publish(servers, range(1_000, 2_000))
    found = history.offsets_for(KEY, Window(1_100, 1_200), disorder_ms=0)
    assert found == OffsetRange(PARTITION, 100, 200)


def test_late_records_lie_before_the_end(servers: str, history: LogHistory) -> None:
    publish(servers, range(1_000, 2_000))
    found = history.offsets_for(KEY, Window(1_100, 1_200), disorder_ms=50)
    assert found == OffsetRange(PARTITION, 100, 250)


@pytest.mark.parametrize(("late_end", "end"), [(0, 200), (50, 200), (700, 700), (5_000, 1_000)])
def test_a_window_reaches_to_its_late_arrivals_and_never_beyond_the_log(
    servers: str, history: LogHistory, late_end: int, end: int
) -> None:
    publish(servers, range(1_000, 2_000))
    asked: list[int] = []

    def read_notes(partition: int) -> WindowNotes:
        asked.append(partition)
        return WindowNotes(late_end)

    found = history.offsets_for(KEY, Window(1_100, 1_200), 0, read_notes)
    assert (found, asked) == (OffsetRange(PARTITION, 100, end), [PARTITION])


def test_a_window_that_reaches_the_present_ends_at_the_end(
    servers: str, history: LogHistory
) -> None:
    publish(servers, range(1_000, 2_000))
    found = history.offsets_for(KEY, Window(1_900, 9_000), disorder_ms=0)
    assert found == OffsetRange(PARTITION, 900, 1_000)


def test_a_window_after_the_last_record_is_empty(servers: str, history: LogHistory) -> None:
    publish(servers, range(1_000, 2_000))
    found = history.offsets_for(KEY, Window(5_000, 9_000), disorder_ms=0)
    assert found == OffsetRange(PARTITION, 1_000, 1_000)


def test_a_log_without_records_has_an_empty_window(history: LogHistory) -> None:
    assert history.offsets_for(KEY, Window(1, 2), disorder_ms=0) == OffsetRange(PARTITION, 0, 0)


def test_a_window_that_starts_before_the_first_record_ever_is_complete(
    servers: str, history: LogHistory
) -> None:
    publish(servers, range(1_000, 2_000))
    found = history.offsets_for(KEY, Window(1, 1_010), disorder_ms=0)
    assert found == OffsetRange(PARTITION, 0, 10)


def delete_before(servers: str, offset: int) -> None:
    place = TopicPartition(DELIVERY_LOG, PARTITION, offset)
    admin = AdminClient({"bootstrap.servers": servers})
    for outcome in admin.delete_records([place]).values():
        outcome.result()


def test_a_window_whose_start_may_be_deleted_is_refused(servers: str, history: LogHistory) -> None:
    publish(servers, range(1_000, 2_000))
    delete_before(servers, 300)
    with pytest.raises(WindowNotRetained) as refused:
        history.offsets_for(KEY, Window(1_200, 1_900), disorder_ms=0)
    assert refused.value.available_from_ms == 1_300
    found = history.offsets_for(KEY, Window(1_300, 1_900), disorder_ms=0)
    assert found == OffsetRange(PARTITION, 300, 900)


def test_a_log_that_lost_everything_has_an_empty_window_after_it(
    servers: str, history: LogHistory
) -> None:
    publish(servers, range(1_000, 2_000))
    delete_before(servers, 1_000)
    found = history.offsets_for(KEY, Window(5_000, 9_000), disorder_ms=0)
    assert found == OffsetRange(PARTITION, 1_000, 1_000)


def test_a_log_that_answers_is_fit(history: LogHistory) -> None:
    history.check()


def test_a_log_without_the_topic_is_not_fit_and_does_not_get_it(broker: BrokerProcess) -> None:
    with pytest.raises(LogUnavailable):
        LogHistory(broker.bootstrap_servers, topic="not_there").check()
    topics = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(
        timeout=DEADLINE_S
    )
    assert "not_there" not in topics.topics


def test_a_log_that_is_down_is_not_fit() -> None:
    with pytest.raises(LogUnavailable):
        LogHistory("127.0.0.1:1", timeout_s=0.5).check()
