"""The live path between accounts that do not trust each other, on a real broker."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.domain.grants import Grant
from app.domain.model import NewWebhook, Webhook
from app.log.topics import DELIVERY_LOG, EVENTS
from app.webhooks.signing import new_secret
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import until
from tests.support.service.live_service import LiveScene, event


@pytest.fixture
def scene(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread, other: ReceiverThread
) -> Iterator[LiveScene]:
    """It ends before its receivers."""
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url) as scene:
        scene.make()
        yield scene


def webhook_for_all_events(
    scene: LiveScene, account_name: str, receiver: ReceiverThread
) -> Webhook:
    """Create an ENABLED webhook of a new account without grants, with a rule for all events."""
    account_id = scene.store.create_account(account_name).id
    new = NewWebhook(receiver.url, account_name, new_secret(), account_id)
    webhook = scene.store.create_webhook(new, event_types=["*"])
    receiver.expect(webhook.secret)
    return scene.store.enable_webhook(webhook.id, webhook.url)


def test_an_account_receives_what_is_published_for_it_and_what_it_is_granted(
    scene: LiveScene, receiver: ReceiverThread, other: ReceiverThread
) -> None:
    alice = webhook_for_all_events(scene, "alice", receiver)
    mallory = webhook_for_all_events(scene, "mallory", other)
    scene.store.put_grant(Grant(alice.account_id, "dm", ("dm.*",)))
    scene.live()
    # Mallory's rule matches all of them.
    scene.publish(event(1, "dm.sent", userId="42"))
    for_alice = event(2, "follow.created")
    for_nobody = event(3, "dm.sent")
    headers = {"event-type": "x", "event-id": "evt_2", "account-id": alice.account_id}
    scene.produce(
        EVENTS,
        [
            (None, headers, json_of(for_alice)),
            (None, {}, json_of(for_alice | {"id": "evt_4", "accountId": alice.account_id})),
            (None, {"event-type": "dm.sent", "account-id": ""}, json_of(for_nobody)),
            (None, {}, json_of(for_nobody | {"accountId": 42})),
        ],
    )
    until(lambda: sorted(receiver.taken) == ["evt_1", "evt_2", "evt_4"], "alice has her events")
    # From now on mallory may see user 42.
    where = (("data.userId", "42"),)
    scene.store.put_grant(Grant(mallory.account_id, "user-42", ("dm.*",), where))
    publish_until_taken(scene, other)
    assert set(other.taken) <= {f"evt_{number}" for number in range(100, 200)}
    logged = {
        record.headers["event-id"]: record.headers.get("account-id")
        for record in scene.read(DELIVERY_LOG)
        if record.key == alice.id
    }
    assert logged["evt_1"] is None
    assert logged["evt_2"] == logged["evt_4"] == alice.account_id
    assert not receiver.problems + other.problems


def publish_until_taken(scene: LiveScene, receiver: ReceiverThread) -> None:
    """Publish events of user 42 and others, until a receiver has one; only 42's are granted."""
    number = 100

    def is_taken() -> bool:
        nonlocal number
        if number < 200:
            scene.publish(
                event(number, "dm.sent", userId="42"), event(900 + number, "dm.sent", userId="43")
            )
            number += 1
        return bool(receiver.taken)

    until(is_taken, "an event that is now granted")


def json_of(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode()
