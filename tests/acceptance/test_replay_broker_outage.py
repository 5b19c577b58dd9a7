"""A replay over two brokers is complete although one of them dies and comes back."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.log.topics import DELIVERY_LOG
from logbroker.client.partitioner import partition_for_key
from tests.support.kafka.broker_cluster import BrokerCluster
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.service.worker_service import EVENTS, SLOW_S, Job, Stage

pytestmark = pytest.mark.long

SOME = 150
"""Events that a receiver has when its broker dies."""


LONG_LEASE_S = "60"
"""No worker loses a replay by itself, however busy the machine is."""


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: SharedZooKeeper) -> Iterator[BrokerCluster]:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=2) as cluster:
        yield cluster.serve()


@pytest.fixture
def stage(tmp_path: Path, cluster: BrokerCluster) -> Iterator[Stage]:
    database_url = f"sqlite:///{tmp_path}/rewind.db"
    with Stage(tmp_path, database_url, cluster.bootstrap_servers) as stage:
        yield stage


def broker_of(cluster: BrokerCluster, webhook_id: str) -> BrokerProcess:
    """The broker that has a webhook's events."""
    leaders = cluster.leaders_at(1, DELIVERY_LOG)
    return cluster.brokers[leaders[partition_for_key(webhook_id.encode(), len(leaders))]]


def neighbour_of(cluster: BrokerCluster, stage: Stage, broker: BrokerProcess) -> str:
    """A new webhook whose events another broker has: its id."""
    while True:
        webhook_id = str(stage.register()["id"])
        if broker_of(cluster, webhook_id) is not broker:
            return webhook_id


def check_exactly_once(stage: Stage, job: Job, *more: str) -> None:
    assert (job["state"], job["error"]) == ("COMPLETED", None)
    assert (job["counts"]["delivered"], job["counts"]["failed"]) == (EVENTS + len(more), 0)
    assert stage.receiver.problems == []
    assert sorted(stage.receiver.taken) == sorted([*stage.expected, *more])


def test_the_log_of_the_service_is_spread_over_both_brokers(
    cluster: BrokerCluster, stage: Stage
) -> None:
    assert sorted(cluster.leaders_at(1, DELIVERY_LOG)) == [1, 1, 2, 2]


def test_a_replay_waits_for_the_broker_that_has_its_events(
    cluster: BrokerCluster, stage: Stage
) -> None:
    replay_id = stage.replay()
    broker = broker_of(cluster, stage.webhook_id)
    broker.kill()
    stage.worker(lease_s=LONG_LEASE_S).until_says(f'"replay": "{replay_id}"')
    broker.serve()
    check_exactly_once(stage, stage.finished(replay_id))


def test_a_replay_under_way_is_complete_although_its_broker_dies(
    cluster: BrokerCluster, stage: Stage
) -> None:
    stage.receiver.answer(204, delay_s=SLOW_S)
    stage.worker(lease_s=LONG_LEASE_S)
    replay_id = stage.replay()
    stage.until_taken(SOME)
    broker = broker_of(cluster, stage.webhook_id)
    broker.kill()
    broker.serve()
    check_exactly_once(stage, stage.finished(replay_id))


def test_while_a_broker_is_away_replays_from_it_are_refused_and_others_done(
    cluster: BrokerCluster, stage: Stage
) -> None:
    broker = broker_of(cluster, stage.webhook_id)
    neighbour = neighbour_of(cluster, stage, broker)
    stage.publish_until_accepted("evt_of_another", neighbour)
    stage.worker(lease_s=LONG_LEASE_S)
    broker.kill()
    # Its session lives on for a while, so the others still name it as the leader.
    assert stage.ask_replay().status_code == 503
    until(lambda: stage.ask_replay(webhookId=neighbour).status_code == 202, "the other answers")
    (active,) = stage.api.get("/replays", params={"webhookId": neighbour}).json()["items"]
    job = stage.finished(active["id"])
    assert (job["state"], job["counts"]["failed"]) == ("COMPLETED", 0)
    assert "evt_of_another" in stage.receiver.taken
    assert stage.ask_replay().status_code == 503
    broker.serve()
    until(lambda: stage.ask_replay().status_code == 202, "the log answers again")
    (active,) = stage.api.get("/replays", params={"webhookId": stage.webhook_id}).json()["items"]
    job = stage.finished(active["id"])
    assert job["counts"] == {"delivered": EVENTS, "duplicates": stage.copies, "failed": 0}


def test_what_is_published_around_the_death_of_a_broker_is_replayed(
    cluster: BrokerCluster, stage: Stage
) -> None:
    broker = broker_of(cluster, stage.webhook_id)
    neighbour = neighbour_of(cluster, stage, broker)
    broker.kill()
    # A service that stood still would not serve those either whose broker lives.
    stage.publish_until_accepted("evt_of_another", neighbour)
    with ThreadPoolExecutor() as pool:
        published = pool.submit(stage.publish_until_accepted, "evt_meanwhile", stage.webhook_id)
        broker.serve()
        published.result(DEADLINE_S)
    stage.publish_until_accepted("evt_afterwards", stage.webhook_id)
    stage.worker(lease_s=LONG_LEASE_S)
    job = stage.finished(stage.replay())
    check_exactly_once(stage, job, "evt_meanwhile", "evt_afterwards")
