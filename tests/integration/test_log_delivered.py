"""Lookups of live deliveries in a real log, and of events that are not delivered."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from app.config import Settings
from app.domain.dedupe import lasting_digest
from app.domain.delivery import LiveOutcome
from app.domain.model import OffsetRange, Window
from app.log.delivered import DeliveredLookup, LiveDeliveries
from app.log.estimate import Estimate, EstimateQuery, Estimator
from app.log.event import LoggedEvent, NewEvent
from app.log.history import LogHistory
from app.log.outcomes import DeliveryOutcome, encode_outcome
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES, ensure_topics
from logbroker.client.partitioner import partition_for_key
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S
from tests.support.service.live_service import LiveScene, event, now_ms

PARTITIONS = 3
KEY = "wh_1"
PARTITION = partition_for_key(KEY.encode(), PARTITIONS)
DAY_MS = 86_400_000
BEGIN_MS = 1_763_712_000_000
ALL = Window(BEGIN_MS, BEGIN_MS + 10_000)
UNHURRIED_S = 60.0


@pytest.fixture
def servers(broker: BrokerProcess) -> str:
    ensure_topics(broker.bootstrap_servers, partitions=PARTITIONS, retention_ms=6 * DAY_MS)
    return broker.bootstrap_servers


def publish(servers: str, topic: str, events: Sequence[NewEvent], origin: str = "here") -> None:
    async def scenario() -> None:
        async with EventPublisher(servers, origin=origin, server="test") as publisher:
            await publisher.publish(topic, events)

    asyncio.run(scenario())


def owe(servers: str, numbers: Sequence[int]) -> None:
    """Log events of ten bytes: the number of each, at its own time."""
    publish(
        servers,
        DELIVERY_LOG,
        [NewEvent(KEY, f"evt_{n}", "t", BEGIN_MS + n, b"x" * 10) for n in numbers],
    )


def note(servers: str, outcomes: dict[int, LiveOutcome]) -> None:
    """Say what became of live deliveries, as the live path does: by offset in the log."""
    publish(
        servers,
        DELIVERY_OUTCOMES,
        [
            NewEvent(
                KEY,
                f"evt_{offset}",
                "",
                BEGIN_MS + offset,
                encode_outcome(
                    DeliveryOutcome(
                        PARTITION, offset, f"evt_{offset}", outcome, 1, None, None, 0, None
                    )
                ),
            )
            for offset, outcome in outcomes.items()
        ],
    )


def deliveries(servers: str) -> LiveDeliveries:
    settings = Settings(bootstrap_servers=servers, origin="here")
    return LiveDeliveries(settings, LogHistory(servers, topic=DELIVERY_OUTCOMES), KEY, ALL)


def estimate(servers: str, end: int, **bounds: Any) -> Estimate:
    """What is still missing of the first `end` records."""
    offsets = OffsetRange(PARTITION, 0, end)
    question = EstimateQuery(offsets, KEY.encode(), ALL, lambda _: True, deliveries(servers))
    return Estimator(servers, time_s_max=UNHURRIED_S, **bounds).estimate(question)


def delivered_offsets(found: DeliveredLookup, end: int) -> list[int]:
    return [offset for offset in range(end) if logged(offset) in found.events]


def logged(offset: int) -> LoggedEvent:
    return LoggedEvent(offset, BEGIN_MS, KEY.encode(), f"evt_{offset}", "t", b"x" * 10, "here")


def test_what_was_delivered_live_is_not_missing(servers: str) -> None:
    owe(servers, range(40))
    kinds = [LiveOutcome.DELIVERED, LiveOutcome.FAILED, LiveOutcome.SKIPPED, LiveOutcome.DISABLED]
    note(servers, {offset: kinds[offset % 4] for offset in range(36)})  # of the rest, nothing
    found = estimate(servers, 40)
    assert (found.events, found.bytes) == (31, 310)
    assert (found.is_exact, found.is_upper_bound) == (True, False)


def test_what_a_replay_delivered_is_not_missing(servers: str) -> None:
    owe(servers, range(40))
    note(servers, dict.fromkeys(range(10), LiveOutcome.DELIVERED))
    query = EstimateQuery(
        OffsetRange(PARTITION, 0, 40),
        KEY.encode(),
        ALL,
        lambda _: True,
        deliveries(servers),
        lambda event: event.offset >= 35,
    )
    assert Estimator(servers, time_s_max=UNHURRIED_S).estimate(query).events == 25


def test_only_undelivered_events_of_the_live_path_are_counted(
    tmp_path: Path, broker: BrokerProcess
) -> None:
    servers, from_ms = broker.bootstrap_servers, now_ms()
    with (
        ReceiverThread() as receiver,
        LiveScene(tmp_path, servers, f"sqlite:///{tmp_path}/rewind.db") as scene,
    ):
        scene.make()
        webhook = scene.webhook(receiver)
        scene.live()
        scene.owe(webhook, event(1))
        scene.until_outcomes(1)
        receiver.answer(400)
        scene.owe(webhook, event(2))
        taken, failed = sorted(scene.until_outcomes(2), key=lambda each: each.offset)
        assert (taken.outcome, failed.outcome) == (LiveOutcome.DELIVERED, LiveOutcome.FAILED)
    settings = Settings(bootstrap_servers=servers, origin="here")
    window = Window(from_ms, now_ms() + 1)
    history = LogHistory(servers, topic=DELIVERY_OUTCOMES)
    question = EstimateQuery(
        OffsetRange(failed.partition, 0, 2),
        webhook.id.encode(),
        window,
        lambda _: True,
        LiveDeliveries(settings, history, webhook.id, window),
    )
    found = Estimator(servers, time_s_max=UNHURRIED_S).estimate(question)
    assert (found.events, found.is_exact, found.is_upper_bound) == (1, True, False)


def test_a_copy_of_what_was_delivered_live_is_not_missing_either(servers: str) -> None:
    owe(servers, [0, 1, 2, 1])
    note(servers, {1: LiveOutcome.DELIVERED, 3: LiveOutcome.SKIPPED})
    found = estimate(servers, 4)
    assert (found.events, found.is_exact, found.is_upper_bound) == (2, True, False)


def test_an_event_delivered_by_another_data_centre_is_not_missing(
    servers: str,
) -> None:
    mirrored = [NewEvent(KEY, f"evt_{n}", "t", BEGIN_MS + n, b"x" * 10) for n in range(30)]
    publish(servers, DELIVERY_LOG, mirrored, origin="elsewhere")
    owe(servers, range(30, 40))
    became = [
        event._replace(
            body=encode_outcome(
                DeliveryOutcome(
                    PARTITION,
                    35 + n,  # there: here, other events have these offsets
                    event.event_id,
                    LiveOutcome.DELIVERED if n % 2 else LiveOutcome.FAILED,
                    1,
                    None,
                    None,
                    0,
                    lasting_digest(event.event_id, event.body),
                )
            ),
        )
        for n, event in enumerate(mirrored[:20])
    ]
    publish(servers, DELIVERY_OUTCOMES, became, origin="elsewhere")
    note(servers, {39: LiveOutcome.DELIVERED})
    found = estimate(servers, 40)
    assert (found.events, found.is_exact, found.is_upper_bound) == (29, True, False)


def test_more_outcomes_than_may_be_read_leave_an_upper_bound(servers: str) -> None:
    owe(servers, range(30))
    note(servers, dict.fromkeys(range(25), LiveOutcome.FAILED))
    note(servers, dict.fromkeys(range(20), LiveOutcome.DELIVERED))
    found = estimate(servers, 30, records_max=30)
    # Five of those that were delivered are known of.
    assert (found.events, found.is_exact, found.is_upper_bound) == (25, False, True)


def test_no_time_to_read_the_outcomes_leaves_them_unknown(servers: str) -> None:
    note(servers, dict.fromkeys(range(20), LiveOutcome.DELIVERED))
    found = deliveries(servers).delivered(OffsetRange(PARTITION, 0, 20), lambda: False)
    assert (delivered_offsets(found, 20), found.is_complete) == ([], False)


def test_no_room_for_all_that_was_delivered_leaves_some_unknown(servers: str) -> None:
    note(servers, dict.fromkeys((0, 1, 5_000), LiveOutcome.DELIVERED))
    offsets = OffsetRange(PARTITION, 0, 6_000)
    found = deliveries(servers).delivered(offsets, lambda: True, pages_max=1)
    assert (delivered_offsets(found, 6_000), found.is_complete) == ([0, 1], False)
    found = deliveries(servers).delivered(offsets, lambda: True)
    assert (delivered_offsets(found, 6_000), found.is_complete) == ([0, 1, 5_000], True)


def test_outcomes_that_are_not_kept_any_more_leave_some_unknown(servers: str) -> None:
    note(servers, dict.fromkeys(range(20), LiveOutcome.DELIVERED))
    kept_from = TopicPartition(DELIVERY_OUTCOMES, PARTITION, 12)
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_records([kept_from])[kept_from].result(DEADLINE_S)
    found = deliveries(servers).delivered(OffsetRange(PARTITION, 0, 20), lambda: True)
    assert (delivered_offsets(found, 20), found.is_complete) == (list(range(12, 20)), False)


def test_without_a_topic_of_outcomes_nothing_was_delivered(servers: str) -> None:
    owe(servers, range(10))
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([DELIVERY_OUTCOMES])[DELIVERY_OUTCOMES].result(DEADLINE_S)
    found = estimate(servers, 10)
    assert (found.events, found.is_exact, found.is_upper_bound) == (10, True, False)
