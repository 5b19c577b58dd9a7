"""Worker processes that crash, freeze and end, on a real broker and both databases."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.log.event import OwedEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, ensure_topics
from app.replay.model import Counts, NewReplay, NewWebhook, Replay, Window
from app.replay.states import TERMINAL, ReplayState
from app.store import Store, migrate
from app.webhooks.receiver import ReceivedWebhook, WebhookReceiver
from app.webhooks.signing import new_secret
from logbroker.embedded import EmbeddedBroker

RETENTION_MS = 6 * 86_400_000
EVENTS = 1_500
DEADLINE_S = 60.0
RUN = """
import os, sys
from app.config import Settings
from app.replay_workers.server import run
sys.exit(run(Settings.load(os.environ)))
"""


async def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        await asyncio.sleep(0.02)


class WorkerProcess:
    """A worker with a short lease; what it says is in a file."""

    def __init__(self, folder: Path, number: int, environment: dict[str, str]) -> None:
        self._said = folder / f"worker-{number}.log"
        with self._said.open("w") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN], stderr=stderr, env=environment
            )

    def says(self, text: str) -> bool:
        return text in self._said.read_text()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


class Scene:
    """A broker with events, a database with a replay, a receiver, and workers to come."""

    def __init__(self, folder: Path, broker: EmbeddedBroker, database_url: str) -> None:
        self._folder = folder
        self._servers = broker.bootstrap_servers
        self._database_url = database_url
        self._workers: list[WorkerProcess] = []
        self.event_ids: list[str] = []
        self.receiver = WebhookReceiver(on_webhook=self._take)
        migrate(database_url)
        self.store = Store.open(database_url)

    def _take(self, got: ReceivedWebhook) -> None:
        # The end of the replay is told as well.
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
                OwedEvent(webhook.id, f"evt_{n}", "t", now_ms - EVENTS + n, b'{"n": %d}' % n)
                for n in range(EVENTS)
            ]
            await publisher.publish(DELIVERY_LOG, events)
        window = Window(now_ms - EVENTS, now_ms)
        return self.store.create_replay(NewReplay(webhook.id, window))[0]

    def worker(self, lease_s: float = 1.5) -> WorkerProcess:
        environment = os.environ | {
            "REWIND_DATABASE": self._database_url,
            "REWIND_BOOTSTRAP_SERVERS": self._servers,
            "REWIND_ALLOW_PRIVATE_TARGETS": "true",
            "REWIND_LEASE_S": str(lease_s),
            "REWIND_HEARTBEAT_S": "0.5",
            "REWIND_CHECKPOINT_INTERVAL_S": "0.2",
        }
        worker = WorkerProcess(self._folder, len(self._workers), environment)
        self._workers.append(worker)
        return worker

    async def freeze(self, worker: WorkerProcess) -> None:
        """Freeze a worker, but not within a write: on SQLite nobody else could write then."""
        worker.freeze()
        while not self._is_writable():
            worker.thaw()
            await asyncio.sleep(0.01)
            worker.freeze()

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
        await until(lambda: len(self.event_ids) >= count, f"{count} events came")

    async def finished(self, replay: Replay) -> Replay:
        await until(lambda: self.store.replay(replay.id).state in TERMINAL, "it was finished")
        return self.store.replay(replay.id)

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self.store.close()


@pytest.fixture
def scene(tmp_path: Path, broker: EmbeddedBroker, database_url: str) -> Iterator[Scene]:
    with closing(Scene(tmp_path, broker, database_url)) as scene:
        yield scene


def test_a_worker_delivers_what_it_looked_up_by_time(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        scene.worker()
        done = await scene.finished(replay)
        assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=EVENTS))
        assert sorted(scene.event_ids) == scene.expected
        await scene.receiver.stop()

    asyncio.run(scenario())


def test_after_a_crash_another_worker_finishes_and_nothing_is_missing(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        first = scene.worker()
        await scene.delivered(300)
        first.end()
        scene.worker()
        done = await scene.finished(replay)
        assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=EVENTS))
        assert sorted(set(scene.event_ids)) == scene.expected
        # Twice came at most what was sent since the last checkpoint.
        assert len(scene.event_ids) - EVENTS < 600
        await scene.receiver.stop()

    asyncio.run(scenario())


def test_a_frozen_worker_that_wakes_after_a_take_over_delivers_nothing(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        first = scene.worker()
        await scene.delivered(300)
        await scene.freeze(first)
        scene.worker()
        done = await scene.finished(replay)
        assert (done.state, done.counts) == (ReplayState.COMPLETED, Counts(delivered=EVENTS))
        assert sorted(set(scene.event_ids)) == scene.expected
        count = len(scene.event_ids)
        first.thaw()
        await until(lambda: first.says('"event": "lost"'), "the first worker let go")
        assert len(scene.event_ids) == count
        await scene.receiver.stop()

    asyncio.run(scenario())


def test_a_worker_told_to_end_leaves_its_replay_to_others_at_once(scene: Scene) -> None:
    async def scenario() -> None:
        replay = await scene.replay()
        first = scene.worker()
        await scene.delivered(300)
        first.process.terminate()
        await until(lambda: first.process.poll() is not None, "the first worker ended")
        assert first.process.returncode == 0
        assert scene.store.replay(replay.id).state is ReplayState.OPEN
        scene.worker()
        done = await scene.finished(replay)
        assert done.counts == Counts(delivered=EVENTS)
        assert sorted(scene.event_ids) == scene.expected
        await scene.receiver.stop()

    asyncio.run(scenario())


def test_two_workers_share_replays_and_never_one(scene: Scene) -> None:
    async def scenario() -> None:
        # Long enough that none ends by itself, however busy the machine is.
        scene.worker(lease_s=60)
        scene.worker(lease_s=60)
        replay = await scene.replay()
        done = await scene.finished(replay)
        assert (done.lease_epoch, done.counts) == (1, Counts(delivered=EVENTS))
        assert sorted(scene.event_ids) == scene.expected
        await scene.receiver.stop()

    asyncio.run(scenario())
