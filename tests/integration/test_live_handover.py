"""Replays with `only: failed` take over what the live path would retry."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.delivery import LiveOutcome
from app.domain.model import NewReplay, Replay, Webhook, Window
from app.domain.options import Only, ReplayOptions
from app.domain.states import TERMINAL
from app.live import deliverer
from app.log.topics import DELIVERY_LOG
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until
from tests.support.service.live_service import LiveScene, events, ids, now_ms

EVENTS = 200


@pytest.fixture
def scene(tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread) -> Iterator[LiveScene]:
    with LiveScene(tmp_path, broker.bootstrap_servers, f"sqlite:///{tmp_path}/rewind.db") as scene:
        scene.make()
        yield scene


@pytest.fixture
def worker(scene: LiveScene, tmp_path: Path) -> Iterator[ServerProcess]:
    environment = {
        "REWIND_DATABASE": f"sqlite:///{tmp_path}/rewind.db",
        "REWIND_BOOTSTRAP_SERVERS": scene.bootstrap_servers,
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        "REWIND_ORIGIN": "here",
        "REWIND_CHECKPOINT_INTERVAL_S": "0.2",
    }
    with ServerProcess(["-m", "app", "worker"], tmp_path / "worker.log", environment) as worker:
        worker.start("rewind worker ready")
        yield worker


def missed(scene: LiveScene, webhook: Webhook) -> Replay:
    """Request the missed events of the last minutes, and return the ended replay."""
    window = Window(now_ms() - 600_000, now_ms() + 1)
    options = ReplayOptions(only=Only.FAILED)
    replay, _ = scene.store.create_replay(NewReplay(webhook.id, window, options, origin="here"))
    until(lambda: scene.store.replay(replay.id).state in TERMINAL, "the end of the replay")
    return scene.store.replay(replay.id)


@pytest.mark.usefixtures("worker")
def test_missed_events_that_are_requested_twice_arrive_once(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, auto_recovery=False)
    scene.live()
    receiver.answer(503)
    scene.owe(webhook, *events(0, EVENTS))
    until(lambda: len(receiver.webhooks) >= EVENTS, "the first attempts")
    receiver.answer(204)
    first, second = missed(scene, webhook), missed(scene, webhook)
    # Then nothing is left to the live path, whatever its delays.
    until(lambda: len(scene.outcomes()) >= EVENTS, "an outcome for each event")
    until(lambda: scene.uncommitted(deliverer.GROUP, DELIVERY_LOG) == 0, "all are settled")
    assert Counter(receiver.taken) == Counter(ids(0, EVENTS))
    live = scene.outcome_counts().get(LiveOutcome.DELIVERED, 0)
    assert live + first.counts.delivered == EVENTS
    assert second.counts.delivered == 0
    left = [each for each in scene.outcomes() if each.outcome is not LiveOutcome.DELIVERED]
    assert {(each.outcome, each.reason) for each in left} <= {
        (LiveOutcome.SKIPPED, f"left to the replay {first.id}")
    }


@pytest.mark.usefixtures("worker")
def test_a_live_process_that_starts_later_does_not_send_what_a_replay_took_over(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, auto_recovery=False)
    first = scene.live(live_delays_s="0,600")
    receiver.answer(503)
    scene.owe(webhook, *events(0, 20))
    until(lambda: len(receiver.webhooks) >= 20, "the first attempts")
    first.stop()
    receiver.answer(204)
    assert missed(scene, webhook).counts.delivered == 20
    # Its group has a position below these events.
    scene.live(live_delays_s="0,0.1")
    scene.owe(webhook, *events(20, 30))
    until(lambda: len(scene.outcomes()) >= 30, "an outcome for each event")
    assert Counter(receiver.taken) == Counter(ids(0, 30))
