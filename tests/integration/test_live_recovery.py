"""A receiver that was down gets what it missed, without a request."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.domain.account_notices import OUTAGE_MS, NewNoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT
from app.domain.delivery import LiveOutcome
from app.domain.endpoint_options import EndpointOptions, Ordering
from app.domain.model import Replay, Webhook
from app.domain.options import Only, ReplayReason
from app.domain.states import ReplayState
from app.live import deliverer
from app.log.topics import DELIVERY_LOG
from app.store.notice_tables import account_notices
from app.store.tables import webhooks
from app.webhooks.signing import new_secret
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until
from tests.support.service.live_service import LiveScene, events, ids

PROBES: dict[str, Any] = {"retry_base_s": 0.1, "retry_cap_s": 0.5}
"""Short pauses between probes."""

STRICT = EndpointOptions(ordering=Ordering.STRICT)


@pytest.fixture
def scene(tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread) -> Iterator[LiveScene]:
    with LiveScene(tmp_path, broker.bootstrap_servers, f"sqlite:///{tmp_path}/rewind.db") as scene:
        scene.make()
        yield scene


@pytest.fixture
def start_worker(scene: LiveScene, tmp_path: Path) -> Iterator[Callable[..., ServerProcess]]:
    """A function that starts a worker, which makes up to `max_in_flight` requests at a time."""
    environment = {
        "REWIND_DATABASE": f"sqlite:///{tmp_path}/rewind.db",
        "REWIND_BOOTSTRAP_SERVERS": scene.bootstrap_servers,
        "REWIND_ALLOW_PRIVATE_TARGETS": "true",
        "REWIND_ORIGIN": "here",
        "REWIND_CHECKPOINT_INTERVAL_S": "0.2",
        "REWIND_LEASE_S": "3",
        "REWIND_HEARTBEAT_S": "0.4",
    } | {f"REWIND_{name.upper()}": str(value) for name, value in PROBES.items()}
    with ExitStack() as stack:

        def start(max_in_flight: int = 16) -> ServerProcess:
            settings = environment | {"REWIND_MAX_IN_FLIGHT": str(max_in_flight)}
            process = ServerProcess(["-m", "app", "worker"], tmp_path / "worker.log", settings)
            stack.enter_context(process)
            process.start("rewind worker ready")
            return process

        yield start


def replays_of(scene: LiveScene, webhook: Webhook) -> list[Replay]:
    return [each for each in scene.store.replays().items if each.webhook_id == webhook.id]


def until_recovered(scene: LiveScene, webhook: Webhook) -> Replay:
    """Wait for the end of the only recovery, and return it."""

    def is_over() -> bool:
        return [each.state for each in replays_of(scene, webhook)] == [ReplayState.COMPLETED]

    until(is_over, "the end of the recovery")
    (replay,) = replays_of(scene, webhook)
    assert replay.reason is ReplayReason.RECOVERY
    assert replay.options.only is Only.FAILED
    return replay


def has_skipped(scene: LiveScene, count: int) -> bool:
    return scene.outcome_counts().get(LiveOutcome.SKIPPED, 0) >= count


def notify(scene: LiveScene, owner: ReceiverThread) -> None:
    """Send the notices of the account to a receiver, which verifies them."""
    secret = new_secret()
    owner.expect(secret)
    endpoint = scene.store.create_notice_endpoint(
        NewNoticeEndpoint(DEFAULT_ACCOUNT, owner.url, "owner", secret)
    )
    scene.store.enable_notice_endpoint(endpoint.id)


def make_outage_long(scene: LiveScene, webhook: Webhook) -> None:
    """Let the webhook fail for a minute already: shorter outages are not reported."""
    until(lambda: scene.store.webhook(webhook.id).failing_since_ms is not None, "the outage")
    earlier = update(webhooks).values(failing_since_ms=webhooks.c.failing_since_ms - OUTAGE_MS)
    scene.store.database.write(lambda connection: connection.execute(earlier))
    due = update(account_notices).values(due_ms=0)
    scene.store.database.write(lambda connection: connection.execute(due))


def recover_from_outage(
    scene: LiveScene,
    receiver: ReceiverThread,
    start_worker: Callable[[], ServerProcess],
    missed: int,
) -> None:
    """Let a receiver miss events, restart all processes twice, and compare what it has."""
    webhook = scene.webhook(receiver)
    receiver.answer(503)
    live, worker = scene.live(**PROBES), start_worker()
    third = missed // 3
    for number in range(3):
        if number:
            live.kill() if number == 1 else live.stop()
            worker.kill() if number == 1 else worker.stop()
            live, worker = scene.live(**PROBES), start_worker()
        scene.owe(webhook, *events(number * third, (number + 1) * third))
        # All but those that are held.
        until(lambda: has_skipped(scene, (number + 1) * third - 20), "skipped events")  # noqa: B023
        if not number:
            make_outage_long(scene, webhook)
    published = 3 * third
    # Not one request for each event.
    assert len(receiver.webhooks) < published // 2
    receiver.answer(204)
    scene.owe(webhook, *events(published, published + 20))
    replay = until_recovered(scene, webhook)
    until(lambda: len(set(receiver.taken)) == published + 20, "all events")
    until(lambda: scene.uncommitted(deliverer.GROUP, DELIVERY_LOG) == 0, "all are settled")
    assert Counter(receiver.taken) == Counter(ids(0, published + 20))
    counts = scene.outcome_counts()
    assert counts[LiveOutcome.DELIVERED] + replay.counts.delivered == published + 20
    assert replay.counts.failed == 0
    assert not scene.store.recoveries(origin="here")


def test_a_receiver_that_returns_has_every_event_once_after_restarts(
    scene: LiveScene, receiver: ReceiverThread, start_worker: Callable[[], ServerProcess]
) -> None:
    with ReceiverThread() as owner:
        notify(scene, owner)
        recover_from_outage(scene, receiver, start_worker, 3_000)

        def types() -> set[str]:
            return {json.loads(notice.body)["type"] for notice in owner.webhooks}

        reported = {"webhook.failing", "webhook.recovered", "replay.completed"}
        until(lambda: types() == reported, "the notices of the account")
    assert owner.problems == []


def test_a_recovery_with_one_sender_lists_no_event_for_another_outage(
    scene: LiveScene, receiver: ReceiverThread, start_worker: Callable[[int], ServerProcess]
) -> None:
    webhook = scene.webhook(receiver)
    scene.live(**PROBES)
    start_worker(1)
    receiver.answer(503)
    scene.owe(webhook, *events(0, 200))
    until(lambda: has_skipped(scene, 180), "skipped events")
    receiver.answer(204, delay_s=0.02)
    until(lambda: len(receiver.taken) >= 20, "a part of the recovery")
    receiver.answer(503)
    before = len(receiver.webhooks)
    # More attempts than one event has.
    until(lambda: len(receiver.webhooks) >= before + 8, "attempts of several events")
    receiver.answer(204)
    replay = until_recovered(scene, webhook)
    assert replay.counts.failed == 0
    assert Counter(receiver.taken) == Counter(ids(0, 200))


@pytest.mark.long
def test_a_receiver_that_missed_a_hundred_thousand_events_has_each_once(
    scene: LiveScene, receiver: ReceiverThread, start_worker: Callable[[], ServerProcess]
) -> None:
    recover_from_outage(scene, receiver, start_worker, 99_999)


def until_live_again(
    scene: LiveScene, webhook: Webhook, receiver: ReceiverThread, start: int
) -> int:
    """Publish events one by one until one is delivered live; the number of the next event."""

    def is_live() -> bool:
        nonlocal start
        scene.owe(webhook, *events(start, start + 1))
        start += 1
        until(lambda: receiver.taken[-1:] == ids(start - 1, start), "the event")
        until(lambda: any(each.event_id == f"evt_{start - 1}" for each in scene.outcomes()), "it")
        outcomes = {each.event_id: each.outcome for each in scene.outcomes()}
        return outcomes[f"evt_{start - 1}"] is LiveOutcome.DELIVERED

    until(is_live, "a live delivery")
    return start


@pytest.mark.long
def test_an_ordered_receiver_has_every_event_once_and_in_order_after_restarts(
    scene: LiveScene, receiver: ReceiverThread, start_worker: Callable[[], ServerProcess]
) -> None:
    webhook = scene.webhook(receiver, options=STRICT)
    live = scene.live(**PROBES)
    start_worker()
    scene.owe(webhook, *events(0, 20))
    until(lambda: receiver.taken == ids(0, 20), "live deliveries")
    until(lambda: scene.uncommitted(deliverer.GROUP, DELIVERY_LOG) == 0, "they are committed")
    receiver.answer(503)
    scene.owe(webhook, *events(20, 400))
    until(lambda: has_skipped(scene, 370), "skipped events")
    live.kill()
    scene.owe(webhook, *events(400, 600))
    live = scene.live(**PROBES)
    until(lambda: has_skipped(scene, 570), "skipped events")
    # No other event overtakes the oldest one.
    tried = {each.event_id for each in receiver.webhooks if each.status == 503}
    assert tried == {"evt_20"}
    receiver.answer(204)
    for number in range(6, 12):
        if number == 7:
            until(lambda: replays_of(scene, webhook), "a recovery")
            receiver.answer(503)
        scene.owe(webhook, *events(100 * number, 100 * number + 100))
        if number == 7:
            until(lambda: receiver.webhooks[-1].status == 503, "the recovery meets an outage")
            receiver.answer(204)
        if number == 8:
            live.stop()
            live = scene.live(**PROBES)
    until(lambda: len(set(receiver.taken)) == 1_200, "all events")
    count = until_live_again(scene, webhook, receiver, 1_200)
    assert receiver.taken == ids(0, count)
    assert all(each.counts.failed == 0 for each in replays_of(scene, webhook))
    assert scene.store.find_unfinished(origin="here") == {}


@pytest.mark.long
def test_a_slow_ordered_receiver_gets_what_exceeds_its_queue_in_order(
    scene: LiveScene, receiver: ReceiverThread, start_worker: Callable[[], ServerProcess]
) -> None:
    webhook = scene.webhook(receiver, options=STRICT)
    scene.live(**PROBES, live_queue_max=20)
    start_worker()
    receiver.answer(204, delay_s=0.02)
    scene.owe(webhook, *events(0, 100))
    until(lambda: replays_of(scene, webhook), "a recovery of the excess")
    scene.owe(webhook, *events(100, 150))
    until(lambda: len(set(receiver.taken)) == 150, "all events")
    assert receiver.taken == ids(0, 150)
    assert LiveOutcome.FAILED not in scene.outcome_counts()
