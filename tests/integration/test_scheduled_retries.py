"""Events that fail for their own reasons are retried by workers, long after their live attempts."""

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.domain.deliveries import DeliveryPlace
from app.domain.delivery import LiveOutcome
from app.domain.endpoint_options import NO_OPTIONS, EndpointOptions
from app.domain.model import NewReplay, NewWebhook, Webhook, WebhookStatus, Window
from app.domain.options import Only, ReplayOptions
from app.domain.scheduled_retries import (
    LIMIT_REASON,
    WAITING_MAX,
    NewScheduledRetry,
    RetryProgress,
)
from app.domain.states import TERMINAL, ReplayState
from app.domain.tallies import DeliveryTally, Span, summed
from app.live import deliverer
from app.log.outcomes import OutcomeRetries
from app.log.topics import DELIVERY_LOG
from app.store.resend_tables import resends
from app.webhooks.signing import new_secret
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.live_service import LiveScene, event, events, ids, now_ms

SHORT: dict[str, Any] = {"live_delays_s": "0,0.05", "scheduled_retries_s": "1,1,1"}
"""Retries that end within seconds."""

MANY: dict[str, Any] = SHORT | {"scheduled_retries_s": ",".join(["1"] * 19)}
"""More than a slow test can watch fail."""

LONG: dict[str, Any] = {"live_delays_s": "0,0.05", "scheduled_retries_s": "3600,3600"}


class PickyReceiver:
    """A receiver that answers some events with 500. `accepted` are the ids of the others.

    It answers their second attempts while `may_reject_again` is set; `is_holding` is set when one
    waits for that.
    """

    def __init__(self) -> None:
        self.may_reject_again = threading.Event()
        self.may_reject_again.set()
        self.is_holding = threading.Event()
        self.failing: set[str] = set()
        self.status = 500
        self.accepted: list[str] = []
        self.rejected: list[str] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                event_id = self.headers["webhook-id"]
                fails = event_id in receiver.failing
                if fails and event_id in receiver.rejected:
                    receiver.is_holding.set()
                    receiver.may_reject_again.wait(DEADLINE_S)
                if event_id.startswith("evt_"):
                    (receiver.rejected if fails else receiver.accepted).append(event_id)
                self.send_response(receiver.status if fails else 204)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="picky")
        self.url = f"http://127.0.0.1:{self._server.server_port}/hooks"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join(DEADLINE_S)
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[PickyReceiver]:
    receiver = PickyReceiver()
    receiver.start()
    yield receiver
    receiver.stop()


@pytest.fixture
def scene(tmp_path: Path, broker: BrokerProcess) -> Iterator[LiveScene]:
    with LiveScene(tmp_path, broker.bootstrap_servers, f"sqlite:///{tmp_path}/rewind.db") as scene:
        scene.make()
        yield scene


def start_worker(scene: LiveScene, folder: Path, **settings: object) -> ServerProcess:
    given = {
        "database": f"sqlite:///{folder}/rewind.db",
        "bootstrap_servers": scene.bootstrap_servers,
        "allow_private_targets": True,
        "origin": "here",
        "checkpoint_interval_s": 0.2,
        "poll_interval_s": 0.2,
    } | settings
    environment = {f"REWIND_{name.upper()}": str(value) for name, value in given.items()}
    return ServerProcess(["-m", "app", "worker"], folder / "worker.log", environment)


@pytest.fixture
def worker(scene: LiveScene, tmp_path: Path) -> Iterator[ServerProcess]:
    with start_worker(scene, tmp_path, **SHORT) as worker:
        worker.start("rewind worker ready")
        yield worker


def webhook_of(
    scene: LiveScene,
    receiver: PickyReceiver,
    *,
    auto_recovery: bool = False,
    options: EndpointOptions = NO_OPTIONS,
) -> Webhook:
    new = NewWebhook(
        receiver.url, "test", new_secret(), auto_recovery=auto_recovery, options=options
    )
    webhook = scene.store.create_webhook(new)
    return scene.store.enable_webhook(webhook.id, webhook.url)


def fail_among_others(
    scene: LiveScene, receiver: PickyReceiver, webhook: Webhook, *failing: str
) -> None:
    """Deliver ten events live, of which some fail, and wait until these have a retry."""
    receiver.failing.update(failing)
    # The last event is accepted between two attempts of the others, so the webhook is healthy.
    receiver.may_reject_again.clear()
    scene.owe(webhook, *events(0, 9))
    accepted = 9 - len(failing)
    until(lambda: len(receiver.accepted) == accepted, "the others are accepted")
    until(lambda: len(receiver.rejected) == len(failing), "these are rejected")
    until(lambda: len(scene.outcomes()) == accepted, "an outcome for each accepted one")
    scene.owe(webhook, event(9))
    until(lambda: len(scene.outcomes()) == accepted + 1, "the last one is delivered")
    receiver.may_reject_again.set()
    until(lambda: len(scene.outcomes()) == 10, "an outcome for each event")


def waiting(scene: LiveScene, webhook: Webhook) -> dict[DeliveryPlace, RetryProgress]:
    """The deliveries that wait for a scheduled retry."""
    found = scene.store.retry_progress(webhook.id)
    return {place: each for place, each in found.items() if each.is_pending}


def is_disabled(scene: LiveScene, webhook: Webhook) -> bool:
    return scene.store.webhook(webhook.id).status is WebhookStatus.DISABLED


def hurry(scene: LiveScene, place: DeliveryPlace | None = None) -> None:
    """Make the retry at a place due, or all that wait."""
    due = update(resends).where(resends.c.due_ms.is_not(None)).values(due_ms=now_ms())
    if place is not None:
        due = due.where(resends.c.record_offset == place.offset)
    scene.store.database.write(lambda db: db.execute(due))


def until_not_sent(scene: LiveScene, webhook: Webhook, start: int) -> int:
    """Publish events one by one until the live path does not send one; returns its number.

    The live path learns within a second that another process has disabled a webhook.
    """
    number = start - 1

    def is_left() -> bool:
        nonlocal number
        number += 1
        scene.owe(webhook, event(number))
        until(lambda: outcome_of(scene, number) is not None, "its outcome")
        return outcome_of(scene, number) is LiveOutcome.DISABLED

    until(is_left, "an event that is not sent")
    return number


def outcome_of(scene: LiveScene, number: int) -> LiveOutcome | None:
    return {each.event_id: each.outcome for each in scene.outcomes()}.get(f"evt_{number}")


def outcomes_of(
    scene: LiveScene, event_id: str
) -> list[tuple[LiveOutcome, OutcomeRetries | None, int]]:
    """The outcomes of an event in the log, with what they say about retries, and its attempts."""
    found = [each for each in scene.outcomes() if each.event_id == event_id]
    return [(each.outcome, each.retries, each.attempts) for each in found]


def counted(scene: LiveScene, webhook: Webhook) -> DeliveryTally:
    return summed(scene.store.tallies(webhook.id, Span.SETTLED, 0), 0)


def missed(scene: LiveScene, webhook: Webhook) -> int:
    """Request the missed events of the last minutes; returns how many the replay delivered."""
    window = Window(now_ms() - 600_000, now_ms() + 1)
    options = ReplayOptions(only=Only.FAILED)
    replay, _ = scene.store.create_replay(NewReplay(webhook.id, window, options, origin="here"))
    until(lambda: scene.store.replay(replay.id).state in TERMINAL, "the end of the replay")
    return scene.store.replay(replay.id).counts.delivered


def test_an_event_that_fails_while_others_are_accepted_arrives_later(
    scene: LiveScene, receiver: PickyReceiver, tmp_path: Path
) -> None:
    webhook = webhook_of(scene, receiver, auto_recovery=True)
    scene.live(**MANY)
    with start_worker(scene, tmp_path, **MANY) as worker:
        worker.start("rewind worker ready")
        fail_among_others(scene, receiver, webhook, "evt_3")
        until(lambda: receiver.rejected.count("evt_3") >= 3, "a scheduled retry failed")
        receiver.failing.clear()
        until(lambda: "evt_3" in receiver.accepted, "a later one is accepted")
        # Counted once, when it is settled.
        until(lambda: counted(scene, webhook).settled == 10, "all are counted")
    assert counted(scene, webhook).delivered == 10
    assert Counter(receiver.accepted) == Counter(ids(0, 10))
    assert waiting(scene, webhook) == {}
    assert scene.store.missed_hours(webhook.id, 0) == ()
    attempts = receiver.rejected.count("evt_3") + 1
    assert outcomes_of(scene, "evt_3") == [
        (LiveOutcome.FAILED, OutcomeRetries.PENDING, 2),
        (LiveOutcome.DELIVERED, OutcomeRetries.ENDED, attempts),
    ]


@pytest.mark.usefixtures("worker")
def test_an_event_fails_after_the_last_scheduled_retry(
    scene: LiveScene, receiver: PickyReceiver
) -> None:
    webhook = webhook_of(scene, receiver)
    scene.live(**SHORT)
    fail_among_others(scene, receiver, webhook, "evt_3")
    until(lambda: counted(scene, webhook).settled == 10, "all are counted")
    assert receiver.rejected == ["evt_3"] * 5
    found = counted(scene, webhook)
    assert (found.delivered, found.failed) == (9, 1)
    assert waiting(scene, webhook) == {}
    assert outcomes_of(scene, "evt_3")[1:] == [(LiveOutcome.FAILED, OutcomeRetries.ENDED, 5)]


@pytest.mark.usefixtures("worker")
def test_an_event_that_fails_alone_on_a_quiet_webhook_is_retried_by_the_schedule(
    scene: LiveScene, receiver: PickyReceiver
) -> None:
    webhook = webhook_of(scene, receiver, auto_recovery=True)
    # A probe that fails would disable the webhook.
    scene.live(**SHORT, disable_after_failures=1, disable_after_s=0)
    receiver.failing.add("evt_0")
    scene.owe(webhook, event(0))
    until(lambda: counted(scene, webhook).failed == 1, "the last retry failed")
    # Two live attempts, and three scheduled ones.
    assert receiver.rejected == ["evt_0"] * 5
    scene.owe(webhook, event(1))
    until(lambda: receiver.accepted == ["evt_1"], "the next event is sent at once")
    assert scene.store.recoveries(origin="here") == {}
    assert not scene.store.replays().items
    found = scene.store.webhook(webhook.id)
    assert (found.status, found.failing_since_ms) == (WebhookStatus.ENABLED, None)


def test_a_second_event_that_fails_begins_a_recovery_that_also_sends_the_first(
    scene: LiveScene, receiver: PickyReceiver, tmp_path: Path
) -> None:
    probes: dict[str, Any] = {"retry_base_s": 0.1, "retry_cap_s": 0.5}
    webhook = webhook_of(scene, receiver, auto_recovery=True)
    scene.live(**LONG, **probes)
    receiver.failing.update(ids(0, 2))
    scene.owe(webhook, event(0))
    until(lambda: waiting(scene, webhook), "it waits for a retry")
    assert scene.store.recoveries(origin="here") == {}
    scene.owe(webhook, event(1))
    until(lambda: scene.store.recoveries(origin="here"), "the webhook is failing")
    receiver.failing.clear()
    with start_worker(scene, tmp_path, **LONG, **probes) as worker:
        worker.start("rewind worker ready")
        until(lambda: set(receiver.accepted) == set(ids(0, 2)), "both are accepted")
        until(lambda: not waiting(scene, webhook), "no retry waits")
    assert Counter(receiver.accepted) == Counter(ids(0, 2))


@pytest.mark.usefixtures("worker")
def test_a_permanent_rejection_ends_the_scheduled_retries(
    scene: LiveScene, receiver: PickyReceiver
) -> None:
    webhook = webhook_of(scene, receiver)
    scene.live(**LONG)
    fail_among_others(scene, receiver, webhook, "evt_3")
    receiver.status = 422
    hurry(scene)
    until(lambda: counted(scene, webhook).settled == 10, "all are counted")
    assert counted(scene, webhook).failed == 1
    assert waiting(scene, webhook) == {}


def test_a_retry_survives_the_death_of_the_live_process(
    scene: LiveScene, receiver: PickyReceiver, tmp_path: Path
) -> None:
    webhook = webhook_of(scene, receiver)
    live = scene.live(**LONG)
    fail_among_others(scene, receiver, webhook, "evt_3")
    live.kill()
    # As if it had died before it committed the position of this event.
    (place,) = waiting(scene, webhook)
    scene.rewind_group(deliverer.GROUP, DELIVERY_LOG, place.partition, place.offset)
    scene.live(**LONG)
    scene.owe(webhook, event(10))
    until(lambda: "evt_10" in receiver.accepted, "the next process delivers")
    until(lambda: scene.uncommitted(deliverer.GROUP, DELIVERY_LOG) == 0, "all are settled")
    assert receiver.rejected == ["evt_3"] * 2
    receiver.failing.clear()
    with start_worker(scene, tmp_path, **LONG) as worker:
        worker.start("rewind worker ready")
        hurry(scene)
        until(lambda: not waiting(scene, webhook), "no retry waits")
    assert receiver.accepted.count("evt_3") == 1


@pytest.mark.long
@pytest.mark.usefixtures("worker")
def test_a_scheduled_retry_that_is_answered_410_disables_the_webhook(
    scene: LiveScene, receiver: PickyReceiver
) -> None:
    webhook = webhook_of(scene, receiver)
    scene.live(**LONG)
    fail_among_others(scene, receiver, webhook, "evt_3", "evt_7")
    until(lambda: len(waiting(scene, webhook)) == 2, "both wait")
    first, second = sorted(waiting(scene, webhook))
    receiver.status = 410
    hurry(scene, first)
    until(lambda: is_disabled(scene, webhook), "the webhook is disabled")
    assert "410 Gone" in (scene.store.webhook(webhook.id).status_reason or "")
    receiver.failing.clear()
    sent = until_not_sent(scene, webhook, 10)
    scene.owe(webhook, *events(sent + 1, sent + 4))
    hurry(scene, second)
    until(lambda: counted(scene, webhook).settled == sent + 4, "all are counted")
    # The other retry, and the events after the 410.
    assert counted(scene, webhook).disabled == 5
    assert counted(scene, webhook).failed == 1
    assert waiting(scene, webhook) == {}
    assert set(receiver.accepted) == set(ids(0, sent)) - {"evt_3", "evt_7"}


@pytest.mark.long
def test_a_410_of_an_earlier_receiver_does_not_disable_a_webhook_with_another_url(
    scene: LiveScene, receiver: PickyReceiver, tmp_path: Path
) -> None:
    webhook = webhook_of(scene, receiver)
    scene.live(**LONG)
    fail_among_others(scene, receiver, webhook, "evt_3")
    receiver.status = 410
    receiver.may_reject_again.clear()
    receiver.is_holding.clear()
    with start_worker(scene, tmp_path, **LONG) as worker:
        worker.start("rewind worker ready")
        hurry(scene)
        until(receiver.is_holding.is_set, "the retry is being answered")
        scene.store.update_webhook(webhook.id, url="http://127.0.0.1:9/elsewhere")
        receiver.may_reject_again.set()
        until(lambda: not waiting(scene, webhook), "its result is stored")
    assert scene.store.webhook(webhook.id).status is WebhookStatus.PENDING


@pytest.mark.usefixtures("worker")
def test_a_replay_of_missed_events_takes_over_what_waits_for_a_retry(
    scene: LiveScene, receiver: PickyReceiver
) -> None:
    webhook = webhook_of(scene, receiver)
    scene.live(**LONG)
    fail_among_others(scene, receiver, webhook, "evt_3", "evt_7")
    until(lambda: len(waiting(scene, webhook)) == 2, "both wait")
    receiver.failing.clear()
    assert missed(scene, webhook) == 2
    hurry(scene)
    assert missed(scene, webhook) == 0
    assert waiting(scene, webhook) == {}
    assert Counter(receiver.accepted) == Counter(ids(0, 10))
    until(lambda: counted(scene, webhook).settled == 10, "all are counted")
    assert counted(scene, webhook).skipped == 2
    for each in ("evt_3", "evt_7"):
        assert outcomes_of(scene, each)[1:] == [(LiveOutcome.SKIPPED, OutcomeRetries.ENDED, 2)]


@pytest.mark.usefixtures("worker")
def test_a_replay_leaves_out_what_a_retry_delivered(
    scene: LiveScene, receiver: PickyReceiver
) -> None:
    webhook = webhook_of(scene, receiver)
    scene.live(**LONG)
    fail_among_others(scene, receiver, webhook, "evt_3")
    receiver.failing.clear()
    hurry(scene)
    until(lambda: "evt_3" in receiver.accepted, "the retry is accepted")
    until(lambda: not waiting(scene, webhook), "its result is stored")
    assert missed(scene, webhook) == 0
    assert Counter(receiver.accepted) == Counter(ids(0, 10))


@pytest.mark.long
def test_an_outage_and_its_recovery_deliver_each_event_once(
    scene: LiveScene, receiver: PickyReceiver, tmp_path: Path
) -> None:
    probes: dict[str, Any] = {"retry_base_s": 0.1, "retry_cap_s": 0.5}
    webhook = webhook_of(scene, receiver, auto_recovery=True)
    scene.live(**LONG, **probes)
    fail_among_others(scene, receiver, webhook, "evt_3")
    until(lambda: waiting(scene, webhook), "it waits for a retry")
    receiver.failing.update(ids(10, 40))
    scene.owe(webhook, *events(10, 40))
    until(lambda: scene.store.recoveries(origin="here"), "the webhook is failing")
    receiver.failing.clear()

    def is_recovered() -> bool:
        found = [each.state for each in scene.store.replays().items]
        return found == [ReplayState.COMPLETED]

    with start_worker(scene, tmp_path, **LONG, **probes) as worker:
        worker.start("rewind worker ready")
        until(is_recovered, "the recovery is completed")
        hurry(scene)
        until(lambda: not waiting(scene, webhook), "no retry waits")
        until(lambda: set(receiver.accepted) == set(ids(0, 40)), "all are accepted")
    assert Counter(receiver.accepted) == Counter(ids(0, 40))


@pytest.mark.usefixtures("worker")
def test_a_webhook_has_its_own_scheduled_retries(scene: LiveScene, receiver: PickyReceiver) -> None:
    options = EndpointOptions(retry_schedule_s=(1, 3_600, 3_600))
    webhook = webhook_of(scene, receiver, options=options)
    scene.live(**SHORT)
    fail_among_others(scene, receiver, webhook, "evt_3")
    (progress,) = waiting(scene, webhook).values()
    assert (progress.next_ms or 0) > now_ms() + 1_800_000
    failed = [each for each in scene.outcomes() if each.outcome is LiveOutcome.FAILED]
    assert [(each.event_id, each.attempts) for each in failed] == [("evt_3", 2)]


@pytest.mark.long
def test_an_event_beyond_the_limit_of_waiting_ones_is_failed_with_this_reason(
    scene: LiveScene, receiver: PickyReceiver
) -> None:
    webhook = webhook_of(scene, receiver)
    others = [
        NewScheduledRetry(webhook.id, DeliveryPlace("here", 99, offset), "evt", "a.b", 0, 3_600, 2)
        for offset in range(WAITING_MAX)
    ]
    assert all(scene.store.add_scheduled_retries(others))
    scene.live(**LONG)
    fail_among_others(scene, receiver, webhook, "evt_3")
    (failed,) = (each for each in scene.outcomes() if each.outcome is LiveOutcome.FAILED)
    assert failed.reason == f"HTTP 500 Internal Server Error; {LIMIT_REASON}"
    until(lambda: counted(scene, webhook).failed == 1, "it is counted")
    assert len(waiting(scene, webhook)) == WAITING_MAX
