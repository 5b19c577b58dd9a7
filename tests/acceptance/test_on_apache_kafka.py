"""The service on Apache Kafka in place of the embedded broker: nothing else is different."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from app.config import DAY_MS
from app.log import topics
from app.webhooks.receiver import SignatureStatus
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.live_service import LiveScene, events, ids
from tests.support.service.worker_service import ENVIRONMENT, EVENTS, SLOW_S, Job, Stage

pytestmark = [
    pytest.mark.xdist_group("apache_kafka"),
    pytest.mark.timeout(TEST_TIMEOUT_S),
    pytest.mark.long,
]

SOME = 150
"""Events that a receiver has when something happens: enough that checkpoints lie behind."""


@pytest.fixture
def stage(tmp_path: Path, database_url: str, apache_kafka: KafkaServer) -> Iterator[Stage]:
    with Stage(tmp_path, database_url, apache_kafka.bootstrap_servers) as stage:
        stage.receiver.answer(204, delay_s=SLOW_S)
        yield stage


@pytest.fixture
def embedded_stage(tmp_path: Path, apache_kafka: KafkaServer) -> Iterator[Stage]:
    """On SQLite alone, for what has nothing to do with the database."""
    url = f"sqlite:///{tmp_path}/rewind.db"
    with Stage(tmp_path, url, apache_kafka.bootstrap_servers) as stage:
        yield stage


def events_taken(stage: Stage) -> list[str]:
    """Their ids, as they came; a webhook also gets pings, and word of a replay's end."""
    return [event_id for event_id in stage.receiver.taken if event_id.startswith("evt_")]


def check_complete(stage: Stage, job: Job) -> None:
    """Every event of the window came, none that is not in it, and the counts add up."""
    assert (job["state"], job["error"]) == ("COMPLETED", None)
    assert sorted(set(events_taken(stage))) == stage.expected
    replayed = [each for each in stage.receiver.webhooks if each.replay_id == job["id"]]
    assert {each.signature for each in replayed} == {SignatureStatus.VERIFIED}
    assert job["counts"] == {"delivered": EVENTS, "duplicates": stage.copies, "failed": 0}
    assert (job["checkpoint"], job["progress"]) == (job["endOffset"], 1)
    assert stage.failures(job["id"]) == []


@pytest.mark.parametrize("database_url", ["mariadb"], indirect=True)
def test_a_job_is_finished_by_another_worker_when_its_own_is_killed(stage: Stage) -> None:
    stage.worker()
    stage.worker()
    replay_id = stage.replay()
    holder = stage.holder_under_way(replay_id, SOME)
    other = stage.other_than(holder)
    holder.kill()
    stage.receiver.answer(204, delay_s=SLOW_S)

    job = stage.finished(replay_id)
    check_complete(stage, job)
    # On a busy machine the other one may be late for a heartbeat of its own.
    assert job["leaseEpoch"] >= 2
    assert stage.holder(replay_id) is other
    # What came twice was sent since the last checkpoint, and no more.
    assert len(events_taken(stage)) - EVENTS < EVENTS / 2


def test_what_happens_is_delivered_live_although_a_process_is_killed(
    tmp_path: Path, apache_kafka: KafkaServer
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    with (
        ReceiverThread() as receiver,
        LiveScene(tmp_path, apache_kafka.bootstrap_servers, url) as scene,
    ):
        scene.make()
        scene.webhook(receiver, "*")
        receiver.answer(204, delay_s=SLOW_S)
        first = scene.live()
        scene.publish(*events(0, EVENTS))
        until(lambda: len(set(receiver.taken)) >= SOME, "some came")
        first.kill()
        # Kafka gives it the partitions once it has missed the first one's heartbeats.
        scene.live()
        until(lambda: set(receiver.taken) == set(ids(0, EVENTS)), "all came")
        assert receiver.problems == []
        logged = {record.headers["event-id"] for record in scene.read(topics.DELIVERY_LOG)}
        assert logged >= set(ids(0, EVENTS))


def test_a_job_waits_for_kafka_to_come_back(
    embedded_stage: Stage, apache_kafka: KafkaServer
) -> None:
    stage = embedded_stage
    replay_id = stage.replay()
    apache_kafka.kill()
    # A worker takes the job all the same, and has not read anything of it.
    stage.worker().until_says(f'"replay": "{replay_id}"')
    # New ones are refused, with the reason.
    assert stage.ask_replay().status_code == 503
    apache_kafka.start()
    until(lambda: stage.api.get("/readyz").status_code == 200, "the log answers again")

    job = stage.finished(replay_id)
    check_complete(stage, job)
    assert sorted(events_taken(stage)) == stage.expected
    stage.publish_until_accepted("evt_afterwards", stage.webhook_id)
    again = stage.finished(stage.replay())
    assert again["counts"]["delivered"] == EVENTS + 1
    check_topics(apache_kafka)


def check_topics(server: KafkaServer) -> None:
    """They are made for good by the first API, with what the service needs."""
    admin = AdminClient({**server.client_properties})
    made = admin.list_topics(timeout=DEADLINE_S).topics
    partitions = int(ENVIRONMENT["REWIND_PARTITIONS"])
    for name in (topics.EVENTS, topics.DELIVERY_LOG, topics.DELIVERY_OUTCOMES):
        assert len(made[name].partitions) == partitions, name
    for name in (topics.DELIVERY_LOG, topics.DELIVERY_OUTCOMES):
        resource = ConfigResource(ResourceType.TOPIC, name)
        config = admin.describe_configs([resource])[resource].result(DEADLINE_S)
        # Five days of history, and one.
        assert config["retention.ms"].value == str(6 * DAY_MS), name
        assert config["message.timestamp.type"].value == "CreateTime", name
