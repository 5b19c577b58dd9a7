"""Windows end where the minute index says, on a real log, and no event of theirs is lost."""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from app.config import Settings
from app.domain.event_index import EventPartition
from app.domain.lateness import AHEAD_MS_MAX, late_spans
from app.domain.model import NewReplay, OffsetRange, Window
from app.domain.windows import MINUTE_MS
from app.log.event import NewEvent
from app.log.event_records import EventRecords
from app.log.history import LogHistory
from app.log.inspection.deadline import Deadline
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, ensure_topics
from app.replay_workers.selection import locate_window
from app.services.event_index import EventIndexer
from app.store import Store
from app.store.event_index import EventIndex
from tests.support.database.migrated import make_migrated
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.damaged_log import damage_batch, flip_bit, stored_batches
from tests.support.processes.waiting import DEADLINE_S, until

RETENTION_MS = 6 * 86_400_000
KEY = "wh_1"
LATENESS_MS = 10 * MINUTE_MS
LIMIT_MS = LATENESS_MS + AHEAD_MS_MAX
START_MS = (time.time_ns() // 1_000_000 - 30 * 60 * MINUTE_MS) // MINUTE_MS * MINUTE_MS


@dataclass
class Scene:
    """A log with one partition, what was published there, and an indexer of every record."""

    settings: Settings
    store: Store
    records: EventRecords
    history: LogHistory
    times_ms: list[int] = field(default_factory=list)

    @property
    def indexer(self) -> EventIndexer:
        index = EventIndex(self.store.database, self.settings.origin)
        return EventIndexer(self.store, index, self.records, RETENTION_MS, unindexed_min=1)

    def publish(self, times_ms: Sequence[int], clock_ms: int) -> None:
        """Publish events as the API does at `clock_ms`: late ones are noted."""
        events = [
            NewEvent(KEY, f"evt_{number}", "t", time_ms, b"{}")
            for number, time_ms in enumerate(times_ms, len(self.times_ms))
        ]

        async def scenario() -> None:
            servers = self.settings.bootstrap_servers
            async with EventPublisher(servers, origin="here", server="test") as publisher:
                arrivals = await publisher.publish(DELIVERY_LOG, events)
            spans = late_spans(arrivals, clock_ms - LATENESS_MS)
            self.store.record_late_arrivals(spans, RETENTION_MS, origin="here")

        asyncio.run(scenario())
        self.times_ms += times_ms

    def index_all(self) -> None:
        while self.indexer.index_new().unindexed:
            pass

    def located(self, from_ms: int, to_ms: int) -> OffsetRange:
        replay = NewReplay(KEY, Window(from_ms, to_ms))
        return locate_window(self.history, self.store, self.settings, replay)

    def offsets_in(self, from_ms: int, to_ms: int) -> list[int]:
        return [n for n, time_ms in enumerate(self.times_ms) if from_ms <= time_ms < to_ms]


@pytest.fixture
def scene(broker: BrokerProcess, tmp_path: Path) -> Iterator[Scene]:
    with scene_at(broker.bootstrap_servers, tmp_path) as scene:
        yield scene


@contextmanager
def scene_at(bootstrap_servers: str, tmp_path: Path) -> Iterator[Scene]:
    database = f"sqlite:///{tmp_path}/rewind.db"
    make_migrated(database)
    settings = Settings(
        data_dir=tmp_path,
        database=database,
        bootstrap_servers=bootstrap_servers,
        partitions=1,
        origin="here",
    )
    ensure_topics(bootstrap_servers, partitions=1, retention_ms=RETENTION_MS)
    history = LogHistory(bootstrap_servers)
    with closing(Store.open(database)) as store, closing(EventRecords(settings)) as records:
        yield Scene(settings, store, records, history)


def test_a_window_ends_before_the_many_events_that_follow_it(scene: Scene) -> None:
    clock_ms = START_MS + 40 * MINUTE_MS
    window = [START_MS + 6_000 * number for number in range(10)]
    after = [START_MS + MINUTE_MS + 45 * number for number in range(20_000)]
    scene.publish([*window, *after, clock_ms], START_MS)
    scene.publish([START_MS - 3 * MINUTE_MS], clock_ms)
    assert scene.located(START_MS, START_MS + MINUTE_MS) == OffsetRange(0, 0, 20_010)
    scene.index_all()
    assert scene.located(START_MS, START_MS + MINUTE_MS) == OffsetRange(0, 0, 10)
    # A late event of the window, which is not indexed yet.
    scene.publish([START_MS + 7], clock_ms)
    assert scene.located(START_MS, START_MS + MINUTE_MS) == OffsetRange(0, 0, 20_013)
    scene.index_all()
    assert scene.located(START_MS, START_MS + MINUTE_MS) == OffsetRange(0, 0, 20_013)
    # One of another minute extends only windows with this minute.
    minute_ms = START_MS + 2 * MINUTE_MS
    start, end = (10 + bisect_left(after, minute_ms + each) for each in (0, MINUTE_MS))
    assert scene.located(minute_ms, minute_ms + MINUTE_MS) == OffsetRange(0, start, end)


def test_no_event_of_any_window_is_lost(scene: Scene) -> None:
    check_windows(scene)


@pytest.mark.long
@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_no_event_of_any_window_is_lost_on_apache_kafka(
    apache_kafka: KafkaServer, tmp_path: Path
) -> None:
    delete_deliveries(apache_kafka.bootstrap_servers)
    with scene_at(apache_kafka.bootstrap_servers, tmp_path) as scene:
        check_windows(scene)
    delete_deliveries(apache_kafka.bootstrap_servers)


def delete_deliveries(bootstrap_servers: str) -> None:
    """Delete the topic if it exists."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    with suppress(KafkaException):
        admin.delete_topics([DELIVERY_LOG])[DELIVERY_LOG].result()
    until(lambda: DELIVERY_LOG not in admin.list_topics(timeout=DEADLINE_S).topics, "it is deleted")


def check_windows(scene: Scene) -> None:
    """Check windows while events of random lateness are published and indexed."""
    seed = Random().getrandbits(32)
    random, clock_ms, shorter = Random(seed), START_MS, 0
    for _ in range(15):
        times_ms = []
        for _ in range(random.randrange(1, 40)):
            clock_ms += random.randrange(2 * MINUTE_MS)
            # Clocks of producers differ, some of them are late, a few of them very late.
            behind_ms = random.choice([0, LATENESS_MS, LATENESS_MS, 120 * MINUTE_MS])
            times_ms.append(clock_ms + random.randint(-behind_ms, AHEAD_MS_MAX))
        # The time of the last acknowledgement: events that waited count as late.
        scene.publish(times_ms, clock_ms)
        if random.random() < 0.6:
            scene.index_all()
        for _ in range(20):
            from_ms = START_MS + random.randrange(-10 * MINUTE_MS, clock_ms - START_MS)
            to_ms = from_ms + random.choice([1, MINUTE_MS, 7 * MINUTE_MS, 60 * MINUTE_MS])
            found = scene.located(from_ms, to_ms)
            expected = scene.offsets_in(from_ms, to_ms)
            assert all(found.start <= each < found.end for each in expected), (seed, from_ms, to_ms)
            later = (n for n, ms in enumerate(scene.times_ms) if ms >= to_ms + LIMIT_MS)
            shorter += found.end < next(later, len(scene.times_ms))
    assert shorter > 0, seed


def test_the_index_of_a_recreated_log_is_not_used(scene: Scene) -> None:
    clock_ms = START_MS + 30 * MINUTE_MS
    scene.publish([START_MS, START_MS + 20 * MINUTE_MS, *([clock_ms] * 3)], clock_ms)
    scene.index_all()
    assert scene.located(START_MS, START_MS + 1) == OffsetRange(0, 0, 1)
    delete_deliveries(scene.settings.bootstrap_servers)
    ensure_topics(scene.settings.bootstrap_servers, partitions=1, retention_ms=RETENTION_MS)
    scene.times_ms.clear()
    # Longer than the previous log, with an event of the window where that one had another.
    times_ms = [START_MS + MINUTE_MS, START_MS, START_MS + 40 * MINUTE_MS]
    scene.publish([*times_ms, *([clock_ms] * 5)], clock_ms)
    assert scene.located(START_MS, START_MS + 1) == OffsetRange(0, 0, 2)
    # The indexer continues at its position, and knows nothing of the records below.
    scene.index_all()
    assert scene.located(START_MS, START_MS + 1) == OffsetRange(0, 0, 2)
    scene.publish([clock_ms + 30 * MINUTE_MS, clock_ms + 31 * MINUTE_MS], clock_ms)
    scene.index_all()
    assert scene.located(START_MS, START_MS + 1) == OffsetRange(0, 0, 2)
    assert scene.located(clock_ms, clock_ms + 1).end == 8


def test_deleted_records_leave_the_index(scene: Scene) -> None:
    clock_ms = START_MS + 40 * MINUTE_MS
    scene.publish([START_MS + number * MINUTE_MS for number in range(40)], clock_ms)
    scene.index_all()
    admin = AdminClient({"bootstrap.servers": scene.settings.bootstrap_servers})
    admin.delete_records([TopicPartition(DELIVERY_LOG, 0, 7)])[
        TopicPartition(DELIVERY_LOG, 0, 7)
    ].result()
    scene.publish([clock_ms], clock_ms)
    scene.index_all()
    of = [
        scene.store.indexed_window(0, Window(START_MS, to), origin="here")
        for to in (START_MS + 7 * MINUTE_MS, START_MS + 8 * MINUTE_MS)
    ]
    assert [each and (each.start, each.end) for each in of] == [(7, 0), (7, 8)]
    found = scene.located(START_MS + 9 * MINUTE_MS, START_MS + 10 * MINUTE_MS)
    assert found == OffsetRange(0, 9, 10)


def test_nothing_below_a_batch_that_cannot_be_read_is_known(
    scene: Scene, broker: BrokerProcess
) -> None:
    clock_ms = START_MS + 40 * MINUTE_MS
    for minute in (0, 1, 2):
        scene.publish([START_MS + minute * MINUTE_MS] * 2, clock_ms)
    scene.publish([START_MS + minute * MINUTE_MS for minute in range(3, 40)], clock_ms)
    # Its events may be of any time.
    broker.stop()
    damage_batch(stored_batches(broker.data_dir, DELIVERY_LOG)[1], flip_bit)
    broker.serve()
    scene.index_all()
    scene.publish([clock_ms], clock_ms)
    scene.index_all()
    window = Window(START_MS, START_MS + MINUTE_MS)
    found = scene.store.indexed_window(0, window, origin="here")
    assert found is not None
    assert 4 <= found.start <= 43
    assert scene.located(window.from_ms, window.to_ms).end >= 4


def test_records_that_the_log_does_not_show_yet_are_not_passed(scene: Scene) -> None:
    scene.publish([START_MS] * 5, START_MS)
    deadline = Deadline(DEADLINE_S)
    partition = EventPartition(True, 0)
    assert scene.records.bounds(deadline)[partition] == (0, 5)
    # As after a lookup that another leader answered.
    found = scene.records.read({partition: (0, 9)}, deadline, 2**20)[partition]
    assert (len(found.records), found.position) == (5, 5)
