"""Worker processes that crash, freeze and end, on a real broker and both databases."""

import asyncio
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.domain.model import Counts, NewReplay, NewWebhook, Replay, Window
from app.domain.states import TERMINAL, ReplayState
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, ensure_topics
from app.store import Store
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.signing import new_secret
from tests.support.database.migrated import make_migrated
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until_async

pytestmark = pytest.mark.long

RETENTION_MS = 6 * 86_400_000
EVENTS = 1_500

IN_FLIGHT = 16
"""The requests of a worker at a time."""

SHORT_LEASE_S = 1.5
"""Of a worker that crashes or freezes: another takes its replay over that soon."""


class Scene:
    """A broker with events, a database with a replay, a receiver, and workers to come."""

    def __init__(self, folder: Path, broker: BrokerProcess, database_url: str) -> None:
        self._folder = folder
        self._servers = broker.bootstrap_servers
        self._database_url = database_url
        self._workers: list[ServerProcess] = []
        self.event_ids: list[str] = []
        self.receiver = WebhookReceiver(on_webhook=self._take)
        make_migrated(database_url)
        self.store = Store.open(database_url)

    def _take(self, got: ReceivedWebhook) -> None:
        # The receiver also gets the notice of the replay's end.
        if got.event_id.startswith("evt_"):
            self.event_ids.append(got.event_id)

    @property
    def expected(self) -> list[str]:
        return sorted(f"evt_{n}" for n in range(EVENTS))

    async def replay(self) -> Replay:
        """A replay of every event there is, asked for and not begun."""
        await self.receiver.start()
        # Slow enough to be caught in the middle.
        self.receiver.answer(204, delay_s=0.02)
        url = f"{self.receiver.url}/hook"
        webhook = self.store.create_webhook(NewWebhook(url, "test", new_secret()))
        self.store.enable_webhook(webhook.id, url)
        self.receiver.secret = webhook.secret
        now_ms = time.time_ns() // 1_000_000
        ensure_topics(self._servers, partitions=4, retention_ms=6 * 86_400_000)
        async with EventPublisher(self._servers, origin="here", server="test") as publisher:
            events = [
                NewEvent(webhook.id, f"evt_{n}", "t", now_ms - EVENTS + n, b'{"n": %d}' % n)
                for n in range(EVENTS)
            ]
            await publisher.publish(DELIVERY_LOG, events)
        window = Window(now_ms - EVENTS, now_ms)
        return self.store.create_replay(NewReplay(webhook.id, window))[0]

    def play(self, scenario: Callable[[], Awaitable[None]]) -> None:
        """Run what a test wants to see; the receiver is stopped also where it is not seen."""

        async def run() -> None:
            try:
                await scenario()
            finally:
                await self.receiver.stop()

        asyncio.run(run())

    def worker(self, lease_s: float = 60.0) -> ServerProcess:
        """Start one; by default none loses a replay by itself, however busy the machine is."""
        environment = {
            "REWIND_DATABASE": self._database_url,
            "REWIND_BOOTSTRAP_SERVERS": self._servers,
            "REWIND_ALLOW_PRIVATE_TARGETS": "true",
            "REWIND_LEASE_S": str(lease_s),
            "REWIND_MAX_IN_FLIGHT": str(IN_FLIGHT),
            "REWIND_HEARTBEAT_S": "0.5",
            "REWIND_CHECKPOINT_INTERVAL_S": "0.2",
        }
        output = self._folder / f"worker-{len(self._workers)}.log"
        worker = ServerProcess(["-m", "app", "worker"], output, environment)
        worker.launch()
        self._workers.append(worker)
        return worker

    async def freeze(self, worker: ServerProcess) -> None:
        """Freeze a worker outside of writes: a frozen write would lock SQLite for all."""
        worker.pause()
        while not self._is_writable():
            worker.resume()
            await asyncio.sleep(0.01)
            worker.pause()

    def _is_writable(self) -> bool:
        if not self._database_url.startswith("sqlite:///"):
            return True
        file = self._database_url.removeprefix("sqlite:///")
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    async def delivered(self, count: int) -> None:
        await until_async(lambda: len(self.event_ids) >= count, f"{count} events came")

    async def finished(self, replay: Replay) -> Replay:
        await until_async(lambda: self.store.replay(replay.id).state in TERMINAL, "it was finished")
        return self.store.replay(replay.id)

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self.store.close()


@pytest.fixture
def scene(tmp_path: Path, broker: BrokerProcess, database_url: str) -> Iterator[Scene]:
    with closing(Scene(tmp_path, broker, database_url)) as scene:
        yield scene


def test_a_worker_delivers_the_events_of_its_window(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        scene.worker()
        done = await scene.finished(replay)
        assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=EVENTS))
        assert sorted(scene.event_ids) == scene.expected

    scene.play(scenario)


def test_after_a_crash_another_worker_finishes_and_nothing_is_missing(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        first = scene.worker(SHORT_LEASE_S)
        await scene.delivered(300)
        first.kill()
        sent = len(scene.event_ids)
        checked = scene.store.replay(replay.id).counts.delivered
        scene.worker()
        done = await scene.finished(replay)
        assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=EVENTS))
        assert sorted(set(scene.event_ids)) == scene.expected
        # Twice came at most what was sent since the last checkpoint, and what was on its way.
        assert len(scene.event_ids) - EVENTS <= sent - checked + IN_FLIGHT

    scene.play(scenario)


def test_a_frozen_worker_that_wakes_after_a_take_over_lets_go(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        first = scene.worker(SHORT_LEASE_S)
        await scene.delivered(300)
        await scene.freeze(first)
        scene.worker()
        done = await scene.finished(replay)
        assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=EVENTS))
        assert sorted(set(scene.event_ids)) == scene.expected
        count = len(scene.event_ids)
        first.resume()
        await until_async(lambda: '"event": "lost"' in first.output, "the first worker let go")
        # One request at most may have been frozen between its last look at the lease and the
        # socket: receivers know events by their ids.
        assert len(scene.event_ids) - count <= 1

    scene.play(scenario)


def test_a_worker_that_stops_releases_its_replay_immediately(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        first = scene.worker()
        await scene.delivered(300)
        assert await asyncio.to_thread(first.stop) == 0
        assert scene.store.replay(replay.id).state is ReplayState.OPEN
        scene.worker()
        done = await scene.finished(replay)
        assert done.counts == Counts(delivered=EVENTS)
        assert sorted(scene.event_ids) == scene.expected

    scene.play(scenario)


def test_two_workers_share_replays_and_never_one(scene: Scene) -> None:
    async def scenario() -> None:
        scene.worker()
        scene.worker()
        replay = await scene.replay()
        done = await scene.finished(replay)
        assert (done.lease_epoch, done.counts) == (1, Counts(delivered=EVENTS))
        assert sorted(scene.event_ids) == scene.expected

    scene.play(scenario)


def test_a_crash_in_native_code_reports_the_stacks(scene: Scene) -> None:
    worker = scene.worker()
    worker.until_says("rewind worker ready")
    worker.stop(signal.SIGSEGV)
    assert "Fatal Python error: Segmentation fault" in worker.output
    assert "in run" in worker.output
