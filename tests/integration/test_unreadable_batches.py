"""Batches that no client can read: readers skip them one at a time, and say so."""

from contextlib import closing
from pathlib import Path

import httpx
import pytest
from confluent_kafka import OFFSET_BEGINNING

from app.config import Settings
from app.domain.model import OffsetRange, Window
from app.log.browser import BrowseQuery, LogBrowser, MessageOrder
from app.log.inspection import LogInspector
from app.log.reader import ReplayReader
from app.log.reader_clients import ReaderClients
from app.log.topics import DELIVERY_LOG, EVENTS
from logbroker.audit.audit_log import AuditLog
from logbroker.client.errors import FetchFailed
from logbroker.client.raw import TopicPartition
from logbroker.client.raw.unreadable_batches import inspect_log
from logbroker.client.skipped_batches import SkippedBatch
from logbroker.consumer.fetching import Fetcher, Message, StreamAssignment
from logbroker.records.record import NewRecord, encode_batch
from logbroker.registry.zookeeper.lease import SessionLease
from spark_jobs.log.reading import read_range
from spark_jobs.offsets.ranges import Losses
from spark_jobs.offsets.ranges import OffsetRange as TaskRange
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.damaged_log import DAMAGES, damage_batch, stored_batches
from tests.support.kafka.raw_connection import RawConnection
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.live_service import LiveScene, events, ids, now_ms

ALWAYS = Window(0, 2**50)
KEY = b"wh_1"
BATCH = 4


def write_batches(
    servers: str, topic: str, count: int, key: bytes | None = KEY, first: int = 0, step: int = BATCH
) -> None:
    """Write batches of `BATCH` events to partition 0; each begins `step` numbers after the last."""
    now = now_ms()
    with RawConnection(servers) as connection:
        for number in range(first, first + count * step, step):
            records = [_record(key, now, f"evt_{number + index}") for index in range(BATCH)]
            connection.produce(topic, encode_batch(records), acks=-1)
            assert connection.produced()[1] == 0


def _record(key: bytes | None, time_ms: int, event_id: str) -> NewRecord:
    headers = (("event-id", event_id.encode()), ("event-type", b"follow.created"))
    return NewRecord(time_ms, key, b"{}", headers)


def damage_every_other(broker: BrokerProcess, topic: str) -> None:
    """Damage every second batch of a stopped broker, each in another way."""
    for batch, damage in zip(
        stored_batches(broker.data_dir, topic)[1::2], DAMAGES.values(), strict=True
    ):
        damage_batch(batch, damage)


@pytest.fixture
def damaged_log(broker: BrokerProcess) -> BrokerProcess:
    """A partition in which every other batch has another damage, and the last one is intact."""
    broker.make_topic("orders", 1)
    write_batches(broker.bootstrap_servers, "orders", 2 * len(DAMAGES) + 1)
    broker.stop()
    damage_every_other(broker, "orders")
    return broker.serve()


READABLE = [offset for offset in range(BATCH * (2 * len(DAMAGES) + 1)) if not offset // BATCH % 2]


def test_an_inspection_finds_the_end_of_each_damaged_batch(damaged_log: BrokerProcess) -> None:
    properties = {"bootstrap.servers": damaged_log.bootstrap_servers}
    for number, name in enumerate(DAMAGES):
        start = BATCH * (2 * number + 1)
        found = inspect_log(properties, TopicPartition("orders", 0), start)
        ((_, _, begin, end, reason),) = found.unreadable
        assert (begin, end) == (start, start + BATCH), name
        assert reason
        assert found.has_records


def test_a_replay_reads_what_is_around_damaged_batches(damaged_log: BrokerProcess) -> None:
    reported: list[SkippedBatch] = []
    unreadable: list[SkippedBatch] = []
    offsets: list[int] = []
    end = READABLE[-1] + 1
    reader = ReplayReader(
        ReaderClients(damaged_log.bootstrap_servers),
        "orders",
        OffsetRange(0, 0, end),
        key=KEY,
        window=ALWAYS,
        on_unreadable=reported.append,
    )
    with closing(reader):
        while not reader.is_done:
            fetched = reader.read()
            offsets += [event.offset for event in fetched.events]
            unreadable += fetched.unreadable
    assert offsets == READABLE
    assert [(each.start, each.end) for each in unreadable] == [
        (start, start + BATCH) for start in range(BATCH, end, 2 * BATCH)
    ]
    assert reported == unreadable


def test_the_live_path_delivers_what_is_around_damaged_batches(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url, partitions=1) as scene:
        scene.make()
        webhook = scene.webhook(receiver, "*")
        scene.live().stop()
        servers, batches = broker.bootstrap_servers, 2 * len(DAMAGES) + 1
        write_batches(servers, EVENTS, batches, None, step=100)
        write_batches(servers, DELIVERY_LOG, batches, webhook.id.encode(), BATCH, step=100)
        broker.stop()
        for topic in (EVENTS, DELIVERY_LOG):
            damage_every_other(broker, topic)
        broker.serve()
        live = scene.live()
        expected = [
            f"evt_{number}" for n in range(0, batches, 2) for number in range(100 * n, 100 * n + 8)
        ]
        until(lambda: len(receiver.taken) >= len(expected), "the events around the batches")
        scene.publish(*events(5_000, 5_048))
        until(lambda: len(receiver.taken) >= len(expected) + 48, "the events behind them")
        assert sorted(receiver.taken) == sorted(expected + ids(5_000, 5_048))
        until(lambda: not scene.uncommitted("rewind-delivery", DELIVERY_LOG), "a last commit")
        metrics = scrape(live.metrics_port)
        for topic in (EVENTS, DELIVERY_LOG):
            labels = f'{{topic="{topic}"}}'
            assert metrics[f"rewind_log_unreadable_batches_total{labels}"] == len(DAMAGES)
            assert metrics[f"rewind_log_unreadable_offsets_total{labels}"] == len(DAMAGES) * BATCH
        assert live.output.count("batch-unreadable") == 2 * len(DAMAGES)
        ready = httpx.get(f"http://127.0.0.1:{live.metrics_port}/readyz", timeout=DEADLINE_S)
        assert (ready.status_code, ready.json()) == (200, {"status": "ok"})


@pytest.mark.parametrize("order", MessageOrder)
def test_the_browser_shows_what_is_around_damaged_batches(
    damaged_log: BrokerProcess, order: MessageOrder
) -> None:
    settings = Settings(bootstrap_servers=damaged_log.bootstrap_servers)
    query = BrowseQuery("orders", order=order, limit=100)
    requests = LogInspector(settings).requests
    with closing(LogBrowser(settings, requests, time_s_max=DEADLINE_S)) as browser:
        page = browser.browse(query)
    offsets = [message.offset for message in page.messages]
    assert sorted(offsets) == READABLE
    assert "cannot be read: its CRC does not match" in str(page.gaps)


def test_the_audit_reads_what_is_around_damaged_batches(damaged_log: BrokerProcess) -> None:
    with AuditLog(damaged_log.bootstrap_servers, "orders", 0, {}) as log:
        assert [entry.offset for entry in log.entries()] == READABLE
        assert [(each.start, each.end) for each in log.unreadable] == [
            (start, start + BATCH) for start in range(BATCH, READABLE[-1], 2 * BATCH)
        ]


def test_a_consumer_of_messages_gets_one_error_for_each_damaged_batch(
    damaged_log: BrokerProcess,
) -> None:
    fetcher = Fetcher({"bootstrap.servers": damaged_log.bootstrap_servers})
    assignment = StreamAssignment(
        "orders", {0: OFFSET_BEGINNING}, SessionLease(1, DEADLINE_S, sent_s=0.0)
    )
    offsets: list[int] = []
    failures: list[FetchFailed] = []
    with closing(fetcher):
        while not offsets or offsets[-1] < READABLE[-1]:
            for item in fetcher.fetch(assignment):
                if isinstance(item, Message):
                    offsets.append(item.offset)
                elif isinstance(item, FetchFailed):
                    failures.append(item)
    assert offsets == READABLE
    assert len(failures) == len(DAMAGES)
    assert "offsets 4 to 7 are skipped" in str(failures[0])


def test_a_spark_task_reads_what_is_around_damaged_batches(damaged_log: BrokerProcess) -> None:
    properties = {"bootstrap.servers": damaged_log.bootstrap_servers}
    wanted = TaskRange("orders", 0, 0, READABLE[-1] + 1)
    losses = Losses(are_allowed=True)
    batches = read_range(properties, wanted, columns=["offset"], losses=losses)
    assert [offset.as_py() for batch in batches for offset in batch.column(0)] == READABLE
    assert [(each.start, each.end) for each in losses.ranges] == [
        (start, start + BATCH) for start in range(BATCH, READABLE[-1], 2 * BATCH)
    ]
