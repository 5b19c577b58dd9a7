"""The API as a process with a real broker: accepted events are in the log."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from app.config import Settings
from app.domain.windows import MINUTE_MS, format_time
from app.log.topics import DELIVERY_LOG, EVENTS, ensure_topics
from logbroker.client.audit_format.mark import AUDIT_TOPIC
from logbroker.client.partitioner import partition_for_key
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.api_process import ApiProcess

RETENTION_MS = 6 * 86_400_000
PARTITIONS = 4
Ask = Callable[..., httpx.Response]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        servers = broker.serve().bootstrap_servers
        ensure_topics(servers, partitions=PARTITIONS, retention_ms=RETENTION_MS)
        yield broker


@pytest.fixture(scope="module")
def client(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    with running_api(broker.bootstrap_servers, tmp_path_factory.mktemp("api")) as client:
        yield client


@contextmanager
def running_api(bootstrap_servers: str, data_dir: Path) -> Iterator[httpx.Client]:
    settings = Settings(
        data_dir=data_dir,
        bootstrap_servers=bootstrap_servers,
        partitions=PARTITIONS,
        allow_private_targets=True,
    )
    with ApiProcess(settings, data_dir) as api:
        yield api.client()


@pytest.fixture(scope="module")
def receiver() -> Iterator[ReceiverThread]:
    with ReceiverThread() as receiver:
        yield receiver


@pytest.fixture
def webhook_id(client: httpx.Client, receiver: ReceiverThread) -> str:
    answer = client.post("/webhooks", json={"url": receiver.url})
    return str(answer.json()["id"])


def event(number: int, time_ms: int, **changes: Any) -> dict[str, Any]:
    return {
        "id": f"evt_{number}",
        "type": "follow.created",
        "time": format_time(time_ms),
        "data": {"number": number},
    } | changes


def records(broker: BrokerProcess, topic: str, partition: int) -> list[Message]:
    """Every record of a partition."""
    with closing(
        Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
            }
        )
    ) as consumer:
        low, high = consumer.get_watermark_offsets(
            TopicPartition(topic, partition), timeout=DEADLINE_S
        )
        consumer.assign([TopicPartition(topic, partition, low)])
        found: list[Message] = []
        deadline_s = time.monotonic() + DEADLINE_S
        while len(found) < high - low and time.monotonic() < deadline_s:
            found += consumer.consume(10_000, timeout=0.2)
        return found


def deliveries_to(broker: BrokerProcess, webhook_id: str) -> list[Message]:
    key = webhook_id.encode()
    partition = partition_for_key(key, PARTITIONS)
    found = records(broker, DELIVERY_LOG, partition)
    return [message for message in found if message.key() == key]


def test_the_api_is_ready_when_database_and_log_are(client: httpx.Client) -> None:
    answer = client.get("/readyz")
    assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


def test_an_accepted_event_is_in_the_one_partition_of_its_webhook(
    client: httpx.Client, broker: BrokerProcess, webhook_id: str
) -> None:
    time_ms = time.time_ns() // 1_000_000 - MINUTE_MS
    answer = client.post("/events", json=event(7, time_ms, webhookId=webhook_id))
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1})

    (message,) = deliveries_to(broker, webhook_id)
    assert message.timestamp()[1] == time_ms
    assert json.loads(message.value() or b"") == event(7, time_ms)
    headers = dict(message.headers() or ())
    assert headers["event-id"] == b"evt_7"
    assert headers["event-type"] == b"follow.created"
    assert headers.keys() >= {"origin", "server"}


def test_thousands_of_lines_are_in_the_log_when_they_are_accepted(
    client: httpx.Client, broker: BrokerProcess, webhook_id: str
) -> None:
    time_ms = time.time_ns() // 1_000_000
    events = [event(n, time_ms, webhookId=webhook_id) for n in range(5_000)]
    answer = client.post(
        "/events",
        content="\n".join(map(json.dumps, events)),
        headers={"content-type": "application/x-ndjson"},
    )
    assert answer.json() == {"accepted": 5_000}

    ids = [
        json.loads(message.value() or b"")["id"] for message in deliveries_to(broker, webhook_id)
    ]
    assert ids == [f"evt_{n}" for n in range(5_000)]


def test_events_without_a_webhook_go_to_the_topic_events(
    client: httpx.Client, broker: BrokerProcess, webhook_id: str
) -> None:
    time_ms = time.time_ns() // 1_000_000
    batch = [event(n, time_ms, id=f"mixed_{n}") for n in range(10)]
    batch.append(event(10, time_ms, id="mixed_10", webhookId=webhook_id))
    assert client.post("/events", json=batch).json() == {"accepted": 11}

    found = [
        json.loads(message.value() or b"")["id"]
        for partition in range(PARTITIONS)
        for message in records(broker, EVENTS, partition)
    ]
    assert sorted(found) == [f"mixed_{n}" for n in range(10)]
    assert len(deliveries_to(broker, webhook_id)) == 1
    series = 'rewind_events_published_total{topic="events"} 10.0'
    assert series in client.get("/metrics").text


def replay_of(webhook_id: str, ago_ms: int = 60 * MINUTE_MS) -> dict[str, str]:
    now_ms = time.time_ns() // 1_000_000
    return {
        "webhookId": webhook_id,
        "from": format_time(now_ms - ago_ms),
        "to": format_time(now_ms - MINUTE_MS),
    }


def test_a_second_replay_of_a_webhook_is_rejected_until_the_first_is_over(
    client: httpx.Client, webhook_id: str
) -> None:
    first = client.post("/replays", json=replay_of(webhook_id))
    assert first.status_code == 202
    job = first.json()
    assert first.headers["location"] == f"/replays/{job['id']}"
    assert (job["state"], job["webhookId"]) == ("OPEN", webhook_id)
    assert client.get(first.headers["location"]).json() == job

    second = client.post("/replays", json=replay_of(webhook_id))
    assert second.status_code == 409
    assert second.json()["replayId"] == job["id"]

    client.post(f"/replays/{job['id']}/cancel")
    assert client.post("/replays", json=replay_of(webhook_id)).status_code == 202


def test_a_repeated_idempotency_key_returns_the_first_replay(
    client: httpx.Client, webhook_id: str
) -> None:
    asked, key = replay_of(webhook_id), {"Idempotency-Key": f"key of {webhook_id}"}
    first = client.post("/replays", json=asked, headers=key)
    again = client.post("/replays", json=asked, headers=key)
    assert (first.status_code, again.status_code) == (202, 202)
    assert again.json()["id"] == first.json()["id"]

    other = client.post("/replays", json=replay_of(webhook_id, 2 * MINUTE_MS), headers=key)
    assert other.status_code == 422


def test_a_window_of_deleted_events_is_rejected_with_the_retained_start(
    client: httpx.Client, broker: BrokerProcess, webhook_id: str
) -> None:
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms - 40 * MINUTE_MS, now_ms - 20 * MINUTE_MS]
    for number, time_ms in enumerate(times):
        client.post("/events", json=event(number, time_ms, webhookId=webhook_id))
    old = deliveries_to(broker, webhook_id)[0]
    _delete_up_to(broker, old)

    refused = client.post("/replays", json=replay_of(webhook_id, 50 * MINUTE_MS)).json()
    assert refused["type"] == "urn:rewind:problem:window-refused"
    assert refused["field"] == "from"
    available_from = refused["allowed"].removeprefix("at least ")
    asked = replay_of(webhook_id) | {"from": available_from}
    assert client.post("/replays", json=asked).status_code == 202


def _delete_up_to(broker: BrokerProcess, message: Message) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    place = TopicPartition(topic, partition, offset + 1)
    admin.delete_records([place])[place].result()


def test_the_log_is_used_again_after_an_outage(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        servers = broker.serve().bootstrap_servers
        ensure_topics(servers, partitions=PARTITIONS, retention_ms=RETENTION_MS)
        with running_api(servers, tmp_path) as client:
            broker.stop()
            down = client.get("/readyz")
            assert (down.status_code, down.json()["unavailable"]) == (503, ["log"])

            broker.serve()
            time_ms = time.time_ns() // 1_000_000
            assert client.post("/events", json=event(1, time_ms)).json() == {"accepted": 1}
            assert client.get("/readyz").status_code == 200


def test_what_audit_does_not_take_is_counted_as_lost(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve()
        topic = NewTopic(AUDIT_TOPIC, 1, 1, config={"max.message.bytes": "1"})
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([topic])[AUDIT_TOPIC].result(DEADLINE_S)
        with running_api(broker.bootstrap_servers, tmp_path) as client:
            now_ms = time.time_ns() // 1_000_000
            # The younger one ends the window of the older one.
            events = [event(0, now_ms - 60 * MINUTE_MS), event(1, now_ms)]
            assert client.post("/events", json=events).status_code == 202
            lost = "rewind_audit_dropped_reports_total 1.0"
            until(lambda: lost in client.get("/metrics").text.splitlines(), "it is counted")
