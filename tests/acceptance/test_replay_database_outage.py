"""The database dies under running replays: none is lost, and none is done by two at once."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

from app.domain.model import Counts, NewReplay, NewWebhook, Webhook, Window
from app.domain.options import ReplayOptions
from app.domain.states import TERMINAL, ReplayState
from app.log.event import NewEvent
from app.log.publisher import EventPublisher
from app.log.topics import DELIVERY_LOG, ensure_topics
from app.store import Store, migrate
from app.webhooks.signing import new_secret
from tests.support.database.mariadb import MariaDbServer, require_mariadb
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until

pytestmark = pytest.mark.long

REPLAYS = 4
EVENTS = 400
SLOW_S = 0.01
"""Each replay sends one request at a time, so that it lasts some seconds, in strict order."""

LEASE_S = 3.0
ENVIRONMENT = {
    "REWIND_ALLOW_PRIVATE_TARGETS": "true",
    "REWIND_LEASE_S": str(LEASE_S),
    "REWIND_HEARTBEAT_S": "0.5",
    "REWIND_CHECKPOINT_INTERVAL_S": "0.2",
    # Both workers are needed for all replays.
    "REWIND_JOBS_PER_WORKER": str(REPLAYS // 2),
    "REWIND_WAITING_REPLAYS_PER_WORKER": "0",
}


class Scene:
    """Two workers at work on several replays over a database that a test may kill."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.database = MariaDbServer()
        self.database.start(folder / "mariadb")
        stack.callback(self.database.kill)
        url = self.database.create_database()
        migrate(url)
        self.store = stack.enter_context(closing(Store.open(url)))
        self.receiver = stack.enter_context(ReceiverThread())
        self.receiver.answer(204, delay_s=SLOW_S)
        broker = stack.enter_context(BrokerProcess(folder / "log")).serve()
        now_ms = time.time_ns() // 1_000_000
        self._window = Window(now_ms - EVENTS, now_ms)
        webhooks = [self._webhook() for _ in range(REPLAYS)]
        asyncio.run(self._publish(broker.bootstrap_servers, webhooks))
        self.replay_ids = [self._replay(webhook) for webhook in webhooks]
        self.workers = [
            stack.enter_context(
                ServerProcess(
                    [
                        *("-m", "app", "worker", "--database", url),
                        *("--bootstrap-servers", broker.bootstrap_servers),
                    ],
                    folder / f"worker-{number}.log",
                    ENVIRONMENT,
                )
            )
            for number in range(2)
        ]
        for worker in self.workers:
            worker.start("rewind worker ready")

    def until_taken(self, count: int) -> None:
        """Wait until every replay has delivered so many events."""
        until(
            lambda: all(len(self.delivered(replay_id)) >= count for replay_id in self.replay_ids),
            f"{count} of each",
        )

    def delivered(self, replay_id: str) -> list[int]:
        """Return the numbers of a replay's events in the order of delivery."""
        return [
            int(got.event_id.rpartition("_")[2])
            for got in self.receiver.webhooks
            if got.replay_id == replay_id and got.event_id.startswith("evt_")
        ]

    def check_end(self, replay_id: str) -> None:
        until(lambda: self.store.replay(replay_id).state in TERMINAL, f"{replay_id} is over")
        replay = self.store.replay(replay_id)
        assert (replay.state, replay.error) == (ReplayState.COMPLETED, None)
        assert replay.counts == Counts(delivered=EVENTS)
        delivered = self.delivered(replay_id)
        assert sorted(set(delivered)) == list(range(EVENTS))
        # One worker alone goes upwards. Each later claim may go back, once, to the checkpoint; two
        # at once would go to and fro.
        steps_back = sum(later <= earlier for earlier, later in pairwise(delivered))
        assert steps_back < replay.lease_epoch

    def _webhook(self) -> Webhook:
        new = NewWebhook(self.receiver.url, "test", new_secret())
        return self.store.enable_webhook(self.store.create_webhook(new).id, new.url)

    def _replay(self, webhook: Webhook) -> str:
        new = NewReplay(webhook.id, self._window, ReplayOptions(max_in_flight=1))
        return self.store.create_replay(new)[0].id

    async def _publish(self, bootstrap_servers: str, webhooks: list[Webhook]) -> None:
        ensure_topics(bootstrap_servers, partitions=4, retention_ms=6 * 86_400_000)
        async with EventPublisher(bootstrap_servers, origin="here", server="test") as publisher:
            for webhook in webhooks:
                events = [
                    NewEvent(webhook.id, f"evt_{n}", "t", self._window.from_ms + n, b"{}")
                    for n in range(EVENTS)
                ]
                await publisher.publish(DELIVERY_LOG, events)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    require_mariadb()
    with ExitStack() as stack:
        yield Scene(tmp_path, stack)


def restart(scene: Scene, tmp_path: Path) -> None:
    scene.database.start(tmp_path / "mariadb")


def test_a_database_that_comes_back_at_once_costs_nothing(scene: Scene, tmp_path: Path) -> None:
    for count in (20, 120):
        scene.until_taken(count)
        scene.database.kill()
        restart(scene, tmp_path)
    for replay_id in scene.replay_ids:
        scene.check_end(replay_id)


def test_a_database_that_is_away_for_longer_than_a_lease_loses_no_replay(
    scene: Scene, tmp_path: Path
) -> None:
    scene.until_taken(20)
    scene.database.kill()
    for worker in scene.workers:
        worker.until_says('"event": "heartbeat-failed"')
    # During the outage: without a lease, no worker may send.
    time.sleep(LEASE_S)
    silent = len(scene.receiver.webhooks)
    time.sleep(LEASE_S / 2)
    assert len(scene.receiver.webhooks) == silent
    restart(scene, tmp_path)
    for replay_id in scene.replay_ids:
        scene.check_end(replay_id)
