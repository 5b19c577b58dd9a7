"""The live path on a real broker: deliveries and their outcomes."""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from app.domain.delivery import LiveOutcome
from app.domain.endpoint_options import BearerAuthentication, EndpointOptions
from app.domain.live_backlog import LiveBacklog, WebhookHealth, health_of
from app.domain.model import WebhookStatus, Window
from app.log.topics import DELIVERERS, DELIVERY_LOG, EVENTS
from logbroker.client.partitioner import partition_for_key
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import until
from tests.support.service.live_service import RETENTION_MS, LiveScene, event, events, ids, now_ms


@pytest.fixture
def scene(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread, other: ReceiverThread
) -> Iterator[LiveScene]:
    """It ends before its receivers."""
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url) as scene:
        scene.make()
        yield scene


def test_an_event_is_logged_and_delivered_for_every_matching_webhook(
    tmp_path: Path,
    broker: BrokerProcess,
    database_url: str,
    receiver: ReceiverThread,
    other: ReceiverThread,
) -> None:
    with LiveScene(tmp_path, broker.bootstrap_servers, database_url) as scene:
        scene.make()
        mine = scene.webhook(receiver, "follow.*")
        others = scene.webhook(other, "*", where={"data.userId": "42"})
        scene.live()
        scene.publish(
            event(1, userId="42"), event(2, userId="7"), event(3, "block.created", userId="42")
        )
        scene.publish(event(4, "block.created", userId=42))
        outcomes = scene.until_outcomes(4)
        assert sorted(receiver.taken) == ["evt_1", "evt_2"]
        assert sorted(other.taken) == ["evt_1", "evt_3"]
        assert not receiver.problems + other.problems
        logged = scene.read(DELIVERY_LOG)
        assert Counter(record.key for record in logged) == {mine.id: 2, others.id: 2}
        source = {record.headers["event-id"]: record for record in scene.read(EVENTS)}
        for record in logged:
            assert record.key is not None
            assert record.partition == partition_for_key(record.key.encode(), 4)
            published = source[record.headers["event-id"]]
            assert (record.value, record.time_ms) == (published.value, published.time_ms)
            assert record.headers.pop("audit").startswith("test/")
            assert record.headers == published.headers | {"origin": "here", "server": "test"}
        assert {(each.partition, each.offset) for each in outcomes} == {
            (record.partition, record.offset) for record in logged
        }
        assert {(each.outcome, each.attempts, each.status) for each in outcomes} == {
            (LiveOutcome.DELIVERED, 1, 204)
        }


def test_options_of_a_webhook_apply_to_its_live_deliveries(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, "*")
    options = EndpointOptions(
        {"x-tenant": "blue"},
        BearerAuthentication("t0k"),
        max_events_per_second=1_000,
        max_in_flight=1,
    )
    scene.store.update_webhook(webhook.id, change_options=lambda _: options)
    scene.live()
    scene.publish(*events(1, 21))
    scene.until_outcomes(20)
    assert sorted(receiver.taken) == sorted(ids(1, 21))
    expected = {"x-tenant": "blue", "authorization": "Bearer t0k"}
    assert all(expected.items() <= dict(each.headers).items() for each in receiver.webhooks)
    assert not receiver.problems


def test_events_for_a_webhook_that_is_not_enabled_are_logged_and_not_sent(
    scene: LiveScene, receiver: ReceiverThread, other: ReceiverThread
) -> None:
    disabled = scene.webhook(receiver, "*")
    scene.store.disable_webhook(disabled.id, "its owner is on holiday")
    deleted = scene.webhook(other)
    scene.store.delete_webhook(deleted.id)
    scene.live()
    scene.publish(event(1))
    scene.owe(deleted, event(2))
    outcomes = scene.until_outcomes(2)
    assert {(each.event_id, each.outcome, each.attempts, each.reason) for each in outcomes} == {
        ("evt_1", LiveOutcome.DISABLED, 0, "the webhook is DISABLED"),
        ("evt_2", LiveOutcome.DISABLED, 0, "the webhook is deleted"),
    }
    assert [record.key for record in scene.read(DELIVERY_LOG) if record.key == disabled.id]
    assert not receiver.webhooks + other.webhooks


def test_an_event_fails_after_the_configured_attempts(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*", auto_recovery=False)
    scene.live(live_delays_s="0,0.05,0.1")
    receiver.answer(503)
    scene.publish(event(1))
    (outcome,) = scene.until_outcomes(1)
    assert [webhook.event_id for webhook in receiver.webhooks] == ["evt_1"] * 3
    assert (outcome.outcome, outcome.attempts, outcome.status) == (LiveOutcome.FAILED, 3, 503)
    assert outcome.reason == "HTTP 503 Service Unavailable"


def test_a_webhook_has_its_own_retry_schedule(scene: LiveScene, receiver: ReceiverThread) -> None:
    webhook = scene.webhook(receiver, "*", auto_recovery=False)
    options = EndpointOptions(retry_schedule_s=(1,))
    scene.store.update_webhook(webhook.id, change_options=lambda _: options)
    scene.live(live_delays_s="0,3600")
    receiver.answer(503)
    scene.publish(event(1))
    (outcome,) = scene.until_outcomes(1)
    assert (outcome.outcome, outcome.attempts) == (LiveOutcome.FAILED, 2)


def test_a_retry_may_succeed(scene: LiveScene, receiver: ReceiverThread) -> None:
    scene.webhook(receiver, "*", auto_recovery=False)
    scene.live(live_delays_s="0,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,0.2,60,60")
    receiver.answer(500)
    scene.publish(event(1))
    until(lambda: len(receiver.webhooks) >= 2, "two attempts")
    receiver.answer(204)
    (outcome,) = scene.until_outcomes(1)
    assert receiver.taken == ["evt_1"]
    assert (outcome.outcome, outcome.attempts) == (
        LiveOutcome.DELIVERED,
        len(receiver.webhooks),
    )


def test_events_in_retry_are_counted_until_they_are_settled(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, auto_recovery=False)
    scene.live(live_delays_s="0,2,600")
    receiver.answer(503)
    scene.owe(webhook, *events(0, 20))

    backlogs: list[LiveBacklog] = []

    def health() -> tuple[WebhookHealth | None, int]:
        backlog = scene.store.live_backlogs([webhook.id]).get(webhook.id)
        if backlog is not None:
            backlogs.append(backlog)
        retrying = 0 if backlog is None else backlog.retrying
        return health_of(scene.store.webhook(webhook.id), backlog, None), retrying

    until(lambda: health() == (WebhookHealth.FAILING, 20), "all are counted")
    backlog = backlogs[-1]
    assert (backlog.status, backlog.reason) == (503, "HTTP 503 Service Unavailable")
    assert (backlog.waiting, backlog.retrying) == (20, 20)
    assert backlog.failed_ms < backlog.next_attempt_ms
    until(lambda: len(receiver.webhooks) >= 40, "the second attempts")
    receiver.answer(204)
    scene.owe(webhook, event(20))
    # The others wait for ten more minutes.
    until(lambda: health() == (WebhookHealth.RECOVERING, 20), "it recovers")
    assert receiver.taken == ["evt_20"]


def test_a_permanent_rejection_is_not_retried(scene: LiveScene, receiver: ReceiverThread) -> None:
    scene.webhook(receiver, "*")
    scene.live(live_delays_s="0,0,0")
    receiver.answer(400)
    scene.publish(event(1))
    (outcome,) = scene.until_outcomes(1)
    assert (len(receiver.webhooks), outcome.outcome, outcome.status) == (
        1,
        LiveOutcome.FAILED,
        400,
    )


def test_retry_after_is_honoured(scene: LiveScene, receiver: ReceiverThread) -> None:
    webhook = scene.webhook(receiver, "*")
    scene.live(live_delays_s="0,0.01,0.01", live_in_flight=1)
    receiver.answer(429, retry_after="2")
    scene.publish(event(1))
    until(lambda: len(receiver.webhooks) == 1, "the first attempt")
    receiver.answer(204)
    scene.owe(webhook, event(2))
    scene.until_outcomes(2)
    first, *later = [each.received_ms for each in receiver.webhooks]
    assert len(later) == 2
    # Time is what this is about; a busy machine only makes it longer.
    assert all(moment >= first + 2_000 for moment in later)


def test_a_410_response_disables_the_webhook(scene: LiveScene, receiver: ReceiverThread) -> None:
    webhook = scene.webhook(receiver, "*")
    live = scene.live()
    receiver.answer(410)
    scene.publish(event(1))
    until(lambda: _status(scene, webhook.id) is WebhookStatus.DISABLED, "it is disabled")
    assert scene.store.webhook(webhook.id).status_reason == (
        "the receiver wants no more events: HTTP 410 Gone"
    )
    live.until_says('"action": "disableWebhook"')
    scene.publish(event(2))
    assert [each.outcome for each in sorted(scene.until_outcomes(2), key=lambda o: o.event_id)] == [
        LiveOutcome.FAILED,
        LiveOutcome.DISABLED,
    ]
    assert len(receiver.webhooks) == 1
    (audit,) = [json.loads(line) for line in live.output.splitlines() if "rewind.audit" in line]
    assert (audit["event"], audit["target"], audit["account_id"]) == (
        "change",
        webhook.id,
        webhook.account_id,
    )


def test_many_consecutive_failures_disable_a_webhook_with_a_reason(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, "*", auto_recovery=False)
    scene.live(live_delays_s="0", disable_after_failures=3, disable_after_s=0)
    receiver.answer(500)
    scene.publish(*events(0, 3))
    until(lambda: _status(scene, webhook.id) is WebhookStatus.DISABLED, "it is disabled")
    reason = scene.store.webhook(webhook.id).status_reason or ""
    assert reason.startswith("stopped after 3 consecutive failures since 20")
    assert reason.endswith("HTTP 500 Internal Server Error")


def test_an_outage_is_stored_and_cleared_when_the_receiver_recovers(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, "*", auto_recovery=False)
    scene.live(live_delays_s="0", disable_after_failures=2)
    receiver.answer(500)
    scene.publish(*events(0, 3))
    until(lambda: scene.store.webhook(webhook.id).failing_since_ms, "it is known to fail")
    scene.until_outcomes(3)
    receiver.answer(204)
    scene.publish(event(3))
    until(lambda: not scene.store.webhook(webhook.id).failing_since_ms, "it is known to be well")
    # So many failed, but not for a day.
    assert _status(scene, webhook.id) is WebhookStatus.ENABLED


def test_a_hanging_receiver_delays_no_other_and_its_overflow_is_skipped(
    scene: LiveScene, receiver: ReceiverThread, other: ReceiverThread
) -> None:
    slow = scene.webhook(receiver, "*")
    scene.webhook(other, "*")
    receiver.answer(204, delay_s=3_600.0)
    # The requests that hang do not time out during the test.
    live = scene.live(live_queue_max=20, live_in_flight=2, delivery_timeout_s=3_600)
    scene.publish(*events(0, 300))
    until(lambda: len(other.taken) == 300, "the other one got everything")
    assert Counter(other.taken) == Counter(ids(0, 300))
    until(lambda: scene.outcome_counts().get(LiveOutcome.SKIPPED) == 280, "the rest is left")
    left = [each for each in scene.outcomes() if each.outcome is LiveOutcome.SKIPPED]
    assert {each.attempts for each in left} == {0}
    assert {each.partition for each in left} == {partition_for_key(slow.id.encode(), 4)}
    assert left[0].reason == "too many events wait for this webhook"
    assert scrape(live.metrics_port)["rewind_live_waiting_events"] == 20
    assert len(receiver.webhooks) == 2


def test_a_partition_is_paused_for_a_fast_receiver(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    scene.live(live_queue_max=50)
    scene.owe(webhook, *events(0, 3_000))
    until(lambda: len(receiver.taken) >= 3_000, "everything came")
    assert Counter(receiver.taken) == Counter(ids(0, 3_000))
    scene.until_outcomes(3_000)
    assert scene.outcome_counts() == {LiveOutcome.DELIVERED: 3_000}


def test_malformed_records_are_skipped(scene: LiveScene, receiver: ReceiverThread) -> None:
    scene.webhook(receiver, "*")
    live = scene.live()
    scene.produce(
        EVENTS,
        [
            (None, {}, None),
            (None, {}, b""),
            (None, {}, b"no JSON and no type"),
            (None, {"event-type": b"\xff\xfe"}, b"\xff\xfe"),
            (None, {}, b"[" * 100_000),
            (None, {}, b'{"id": "evt_half", "type": "\\ud800"}'),
            (None, {"event-type": "x" * 257}, b"{}"),
            (None, {"event-type": "x"}, b"x" * 950_000),
            (None, {}, b'{"id": "evt_body", "type": "from.body"}'),
            (None, {"event-type": "x", "event-id": "not\nto be sent"}, b"{}"),
            (None, {"event-type": "x", "event-id": "evt_last"}, b"not JSON"),
        ],
    )
    until(lambda: len(receiver.taken) == 4, "the four valid events came")
    named = set(receiver.taken) - {"evt_body", "evt_last"}
    assert all(name.startswith("events-") for name in named)
    until(
        lambda: scrape(live.metrics_port)['rewind_live_events_total{result="malformed"}'] == 7,
        "the others are counted",
    )
    # Each is counted before it is logged.
    until(lambda: live.output.count('"event": "event-malformed"') == 7, "all are logged")


def test_a_foreign_record_without_id_is_delivered_under_its_position(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver)
    scene.live()
    scene.produce(
        DELIVERY_LOG,
        [
            ("k" * 900_000, {"event-id": "evt_1"}, b"{}"),
            (webhook.id, {"event-type": "t" * 900_000}, b"anything"),
            (None, {}, b"no webhook"),
        ],
    )
    partition = partition_for_key(webhook.id.encode(), 4)
    until(lambda: receiver.taken, "it came")
    assert receiver.taken[0].startswith(f"delivery_log-{partition}-")
    assert {each.outcome for each in scene.until_outcomes(2)} == {
        LiveOutcome.DELIVERED,
        LiveOutcome.DISABLED,
    }


def test_a_rule_takes_effect_while_events_flow(scene: LiveScene, receiver: ReceiverThread) -> None:
    webhook = scene.webhook(receiver, "follow.*")
    scene.live()
    scene.publish(event(0))
    until(lambda: receiver.taken, "the first rule")
    scene.put_rule(webhook, "block.*")
    number = 1

    def is_changed() -> bool:
        nonlocal number
        scene.publish(event(number), event(number + 1, "block.created"))
        number += 2
        return any(int(each.removeprefix("evt_")) % 2 == 0 for each in receiver.taken[1:])

    until(is_changed, "the rule that replaced it")


def test_an_event_published_after_its_rule_is_always_matched(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    scene.live()
    for number in range(5):
        # In the process's copy of the rules, no webhook matches this event.
        scene.webhook(receiver, f"kind-{number}")
        scene.publish(event(number, f"kind-{number}"))
    until(lambda: len(receiver.webhooks) == 5, "all five")


def test_a_duplicate_is_not_sent_again(scene: LiveScene, receiver: ReceiverThread) -> None:
    webhook = scene.webhook(receiver)
    scene.live()
    scene.owe(webhook, event(1), event(1), event(2))
    scene.until_outcomes(3)
    scene.owe(webhook, event(1), event(1, other="body"))
    outcomes = scene.until_outcomes(5)
    assert Counter(receiver.taken) == {"evt_1": 2, "evt_2": 1}
    assert {each.outcome for each in outcomes} == {LiveOutcome.DELIVERED}


def test_a_new_group_matches_all_events_and_delivers_only_later_records(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, "*")
    scene.owe(webhook, *events(0, 5))
    scene.publish(event(5))
    live = scene.live()
    until(lambda: receiver.taken, "the event that was not matched before")
    scene.until_outcomes(1)
    # Where it began is stored before it says that it is ready.
    live.kill()
    scene.owe(webhook, event(6))
    scene.live()
    until(lambda: "evt_6" in receiver.taken, "one from between two processes")
    assert set(receiver.taken) == {"evt_5", "evt_6"}


@pytest.mark.long
def test_nothing_is_matched_before_a_new_group_of_deliverers_has_its_start(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    scene.webhook(receiver, "*")
    scene.publish(event(0))
    with closing(
        Consumer(
            {
                "bootstrap.servers": scene.bootstrap_servers,
                "group.id": DELIVERERS,
                "partition.assignment.strategy": "cooperative-sticky",
                "enable.auto.commit": False,
            }
        )
    ) as first:
        first.subscribe([DELIVERY_LOG])

        def has_all() -> bool:
            first.poll(0.1)
            return len(first.assignment()) == scene.partitions

        until(has_all, "a member that commits nothing has all partitions")
        # It polls no more, so that the live process waits for partitions until it reports that it
        # is ready without them.
        scene.live()
        assert not scene.read(DELIVERY_LOG)
    until(lambda: receiver.taken, "the event")
    assert list(receiver.taken) == ["evt_0"]


def test_old_events_are_left_to_replays(scene: LiveScene, receiver: ReceiverThread) -> None:
    webhook = scene.webhook(receiver)
    scene.live()
    day_before_ms = now_ms() - 25 * 3_600_000
    assert day_before_ms > now_ms() - RETENTION_MS
    scene.produce(
        DELIVERY_LOG, [(webhook.id, {"event-id": "evt_old"}, b"{}")], time_ms=day_before_ms
    )
    (outcome,) = scene.until_outcomes(1)
    assert (outcome.event_id, outcome.outcome) == ("evt_old", LiveOutcome.SKIPPED)
    assert not receiver.webhooks


def test_positions_of_late_events_are_stored_for_replays(
    scene: LiveScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook(receiver, "*")
    scene.live()
    late_ms = now_ms() - 7_200_000
    scene.produce(EVENTS, [(None, {"event-type": "x"}, b"{}")], time_ms=late_ms)
    partition = partition_for_key(webhook.id.encode(), 4)
    window = Window(late_ms, late_ms + 1)
    until(lambda: scene.store.late_end_offset(partition, window, origin="here") == 1, "it is noted")
    until(lambda: receiver.taken, "it came")


def test_metrics_are_exposed(scene: LiveScene, receiver: ReceiverThread) -> None:
    scene.webhook(receiver, "follow.*")
    live = scene.live()
    scene.publish(*events(0, 3), event(3, "block.created"))
    scene.until_outcomes(3)
    wanted = {
        'rewind_live_events_total{result="matched"}': 3,
        'rewind_live_events_total{result="unmatched"}': 1,
        "rewind_live_matched_deliveries_total": 3,
        'rewind_live_settled_events_total{outcome="delivered"}': 3,
        'rewind_delivery_attempts_total{result="delivered"}': 3,
        "rewind_live_delivered_after_event_seconds_count": 3,
        "rewind_live_delivered_after_read_seconds_count": 3,
        "rewind_live_webhooks": 1,
        "rewind_live_rules": 1,
        "rewind_live_waiting_events": 0,
    }
    until(
        lambda: wanted.items() <= scrape(live.metrics_port).items(),
        "all is counted",
    )
    assert scrape(live.metrics_port)["rewind_live_routing_age_seconds"] < 60


def _status(scene: LiveScene, webhook_id: str) -> WebhookStatus:
    return scene.store.webhook(webhook_id).status
