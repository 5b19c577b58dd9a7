"""The topic `audit` shows that the live path received what was published."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from app.config import Settings
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, EVENTS
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.client.audit_format.report import PublishedReport, decode
from logbroker.client.audit_format.sequence_set import SequenceSet
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.kafka.lossy_proxy import LossyLink, Place
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.live_service import LiveScene, ids, now_ms

pytestmark = pytest.mark.long

MATCHER, DELIVERER = "rewind-live@here", "rewind-delivery@here"


class Counted(NamedTuple):
    """Messages that are counted together."""

    topic: str
    producer: str
    window_ms: int


class Books:
    """The sums of all reports in the topic `audit`."""

    def __init__(self, scene: LiveScene) -> None:
        self.published: dict[Counted, SequenceSet] = defaultdict(SequenceSet)
        self.received: dict[tuple[str, Counted], SequenceSet] = defaultdict(SequenceSet)
        for record in scene.read(AUDIT_TOPIC, partitions=1):
            event = decode(record.value)
            assert event is not None
            if isinstance(event, PublishedReport):
                place = Counted(event.topic, event.producer, event.window_ms)
                self.published[place].update(event.sequences)
                continue
            for count in event.counts:
                place = Counted(count.topic, count.producer, count.window_ms)
                self.received[event.tier, place].update(count.sequences)

    def published_count(self, topic: str) -> int:
        return sum(len(each) for place, each in self.published.items() if place.topic == topic)

    def received_count(self, tier: str) -> int:
        return sum(len(each) for (by, _), each in self.received.items() if by == tier)

    def missing(self) -> dict[Counted, int]:
        """Return how many published messages no consumer reported as received."""
        tiers = {EVENTS: MATCHER, DELIVERY_LOG: DELIVERER}
        counts = {
            place: published.difference_count(self.received[tiers[place.topic], place])
            for place, published in self.published.items()
        }
        return {place: count for place, count in counts.items() if count}


@pytest.fixture
def scene(tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread) -> Iterator[LiveScene]:
    """Ends before its receiver does."""
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url) as scene:
        scene.make()
        yield scene


def publish(broker: BrokerProcess, topic: str, events: list[NewEvent]) -> None:
    """Publish as the API does, whose process then ends."""

    async def scenario() -> None:
        async with EventPublisher.of(settings, topics_timeout_s=DEADLINE_S) as publisher:
            await publisher.publish(topic, events)

    servers = broker.bootstrap_servers
    settings = Settings(bootstrap_servers=servers, origin="here", server="api-1", partitions=4)
    asyncio.run(scenario())


def compared(broker: BrokerProcess, *, exit_code: int) -> dict[str, dict[str, int]]:
    """What `logbroker audit` counts for each tier."""
    audit = logbroker_command(broker.bootstrap_servers, "audit")
    # Windows count as soon as they end.
    done = audit("--json", "--lateness-s", "0")
    assert done.returncode == exit_code, done.stdout + done.stderr
    names = ("published", "received", "missing", "duplicated")
    return {
        total["tier"]: {name: total[name] for name in names}
        for total in json.loads(done.stdout)["totals"]
    }


def happened(start: int, end: int, webhook_id: str | None = None) -> list[NewEvent]:
    body = b'{"type":"follow.created"}'
    return [
        NewEvent(webhook_id, f"evt_{number}", "follow.created", now_ms(), body)
        for number in range(start, end)
    ]


def test_every_message_that_is_published_is_received_once_by_each_stage(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, "*")
    live = scene.live()
    publish(broker, EVENTS, happened(0, 300))
    publish(broker, DELIVERY_LOG, happened(300, 400, webhook.id))
    # Records of other producers have no audit mark and are not counted.
    scene.publish({"id": "evt_400", "type": "follow.created"})
    until(lambda: len(set(receiver.taken)) == 401, "all came")
    assert live.stop() == 0
    # The matcher published a delivery for each event, the unmarked one too.
    assert compared(broker, exit_code=0) == {
        MATCHER: {"published": 300, "received": 300, "missing": 0, "duplicated": 0},
        DELIVERER: {"published": 401, "received": 401, "missing": 0, "duplicated": 0},
    }


def test_the_audit_finds_what_a_link_lost_on_the_way_to_each_stage(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    def is_lost(place: Place) -> bool:
        return place.topic in (EVENTS, DELIVERY_LOG) and place.offset % 10 == 3

    webhook = scene.webhook(receiver, "*")
    port = int(broker.bootstrap_servers.rpartition(":")[2])
    with LossyLink(port, is_lost) as link:
        live = scene.live(bootstrap_servers=link.address)
        publish(broker, EVENTS, happened(0, 300))
        publish(broker, DELIVERY_LOG, happened(300, 400, webhook.id))
        until(lambda: len(set(receiver.taken)) + len(link.lost) == 400, "the others came")
        assert live.stop() == 0
    lost = Counter(place.topic for place in link.lost)
    assert lost[EVENTS]
    assert lost[DELIVERY_LOG]
    deliveries = 400 - lost[EVENTS]
    assert len(set(receiver.taken)) == deliveries - lost[DELIVERY_LOG]
    found = compared(broker, exit_code=1)
    assert {tier: counts["missing"] for tier, counts in found.items()} == {
        MATCHER: lost[EVENTS],
        DELIVERER: lost[DELIVERY_LOG],
    }
    assert [found[tier]["published"] for tier in (MATCHER, DELIVERER)] == [300, deliveries]


def test_receipts_come_before_commits_so_a_crash_repeats_and_misses_nothing(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    receiver.answer(204, delay_s=0.01)
    for wave in range(2):
        live = scene.live()
        publish(broker, EVENTS, happened(wave * 500, wave * 500 + 500))
        until(lambda: len(set(receiver.taken)) >= wave * 500 + 100, "some came")  # noqa: B023
        live.kill()
    last = scene.live()
    until(lambda: len(set(receiver.taken)) == 1_000, "all came")
    assert set(receiver.taken) == set(ids(0, 1_000))
    # The last matcher may have published again what a killed one had not committed.
    for group, topic in (("rewind-live", EVENTS), ("rewind-delivery", DELIVERY_LOG)):
        until(lambda: scene.uncommitted(group, topic) == 0, f"{topic} is read")  # noqa: B023
    assert last.stop() == 0
    books = Books(scene)
    assert books.published_count(EVENTS) == books.received_count(MATCHER) == 1_000
    # What killed processes published last is in no monitoring event of theirs; it was received.
    assert books.received_count(DELIVERER) >= 1_000
    assert books.missing() == {}


def test_a_stage_reports_received_messages_while_it_runs(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    receiver.answer(503)
    scene.live(live_delays_s="0,3600")
    publish(broker, DELIVERY_LOG, happened(0, 3, webhook.id))
    # Nothing of it is settled for an hour.
    until(lambda: Books(scene).received_count(DELIVERER) == 3, "three are reported")


def test_where_audit_takes_nothing_events_are_delivered_all_the_same(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    topic = NewTopic(AUDIT_TOPIC, 1, 1, config={"max.message.bytes": "1"})
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([topic])[AUDIT_TOPIC].result(DEADLINE_S)
    webhook = scene.webhook(receiver)
    live = scene.live()
    publish(broker, DELIVERY_LOG, happened(0, 10, webhook.id))
    until(lambda: sorted(receiver.taken) == sorted(ids(0, 10)), "all came")
    until(lambda: scene.uncommitted("rewind-delivery", DELIVERY_LOG) == 0, "and are committed")
    lost = "rewind_live_audit_dropped_reports_total"
    until(lambda: scrape(live.metrics_port)[lost] > 0, "it is counted")
    live.until_says('"event": "audit-reports-dropped"')
    assert live.stop() == 0
    assert not scene.read(AUDIT_TOPIC, partitions=1)


def test_without_the_audit_no_marks_and_no_reports_are_written(
    scene: LiveScene, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    live = scene.live(audit=False)
    scene.publish({"id": "evt_0", "type": "follow.created"})
    scene.until_outcomes(1)
    assert live.stop() == 0
    (deliveries,) = scene.read(DELIVERY_LOG)
    assert "audit" not in deliveries.headers
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert AUDIT_TOPIC not in admin.list_topics(timeout=DEADLINE_S).topics


def test_a_live_process_makes_the_topic_and_keeps_it_for_two_weeks(
    scene: LiveScene, broker: BrokerProcess
) -> None:
    scene.live()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    assert len(admin.list_topics(timeout=DEADLINE_S).topics[AUDIT_TOPIC].partitions) == 1
    resource = ConfigResource(ResourceType.TOPIC, AUDIT_TOPIC)
    settings = admin.describe_configs([resource])[resource].result(DEADLINE_S)
    assert settings["retention.ms"].value == str(14 * 86_400_000)
