"""`logbroker groups` with a failed broker, and with consumers of the paper."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from logbroker.cli.group_admin import GroupAdmin
from logbroker.consumer import ConsumerConnector
from tests.support.kafka.broker_cluster import NO_LEADER, BrokerCluster
from tests.support.kafka.committed_offsets import commit_offsets
from tests.support.kafka.logbroker_command import Run, logbroker_command
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S, until

TOPIC = "clicks"
MESSAGES = 3
"""Messages in each of two partitions."""


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: SharedZooKeeper) -> Iterator[BrokerCluster]:
    """Yield two brokers, each with a partition of a topic."""
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=2) as cluster:
        cluster.serve()
        cluster.brokers[1].make_topic(TOPIC, partitions=2)
        cluster.until_leaders(TOPIC, [1, 2])
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(2 * MESSAGES):
            producer.produce(TOPIC, b"click", partition=number % 2)
        assert producer.flush(DEADLINE_S) == 0
        yield cluster


@pytest.fixture
def groups(cluster: BrokerCluster) -> Run:
    return logbroker_command(cluster.bootstrap_servers, "groups")


def commit(cluster: BrokerCluster, group: str, *offsets: int) -> None:
    """Commit offsets for partitions 0, 1, ... without joining the group."""
    places = [TopicPartition(TOPIC, number, offset) for number, offset in enumerate(offsets)]
    commit_offsets(cluster.bootstrap_servers, group, places)


def described(groups: Run, *arguments: str) -> dict[str, Any]:
    completed = groups("describe", *arguments, "--json")
    assert completed.returncode == 0, completed.stderr
    (found,) = json.loads(completed.stdout)
    return dict(found)


def group_of(cluster: BrokerCluster, broker_id: int) -> str:
    """Return the name of a group that a broker coordinates."""
    admin = GroupAdmin(cluster.bootstrap_servers)
    names = (f"readers-{number}" for number in itertools.count())
    return next(name for name in names if admin.describe(name).coordinator == broker_id)


def test_the_remaining_broker_describes_a_group(cluster: BrokerCluster, groups: Run) -> None:
    name = group_of(cluster, 2)
    commit(cluster, name, 1, 1)
    assert described(groups, name)["coordinator"] == 2
    cluster.brokers[2].kill()
    cluster.until_leaders(TOPIC, [1, NO_LEADER], at=[1])
    until(lambda: groups("describe", name).returncode == 0, "the broker that is left has it")
    found = described(groups, name)
    assert found["coordinator"] == 1
    # The end of the second partition is unknown.
    assert [
        (each["committed_offset"], each["log_end_offset"], each["lag"])
        for each in found["partitions"]
    ] == [(1, MESSAGES, MESSAGES - 1), (1, None, None)]
    refused = groups("reset", name, "--to-earliest", "--all-topics", "--execute")
    assert refused.returncode == 1
    assert refused.stderr == (
        "logbroker: partition 1 of topic 'clicks' has no leader; cannot look up offsets\n"
    )
    done = groups("reset", name, "--to-earliest", "--topic", f"{TOPIC}:0", "--execute")
    assert done.returncode == 0, done.stderr
    assert described(groups, name)["partitions"][0]["committed_offset"] == 0


def test_groups_of_the_paper_are_listed_too(cluster: BrokerCluster, groups: Run) -> None:
    commit(cluster, "bookmarks", 2)
    with ConsumerConnector(
        cluster.zookeeper,
        "paper/readers",
        cluster.bootstrap_servers,
        auto_offset_reset="smallest",
        auto_commit_interval_s=None,
    ) as connector:
        (stream,) = connector.create_message_streams({TOPIC: 1})[TOPIC]
        for _ in range(2 * MESSAGES):
            next(stream)
        connector.commit_offsets()
        asked = ("--zookeeper", cluster.zookeeper)
        listed = {
            each["group"]: each for each in json.loads(groups("list", *asked, "--json").stdout)
        }
        found = described(groups, "paper/readers", *asked)
        completed = groups("describe", "paper/readers", *asked).stdout.splitlines()
    assert listed["bookmarks"] == {"group": "bookmarks", "state": "Empty", "consumers": 0}
    assert listed["paper/readers"]["consumers"] == 1
    (consumer,) = found["consumers"]
    assert consumer["streams"] == {TOPIC: 1}
    assert found["members"] == []
    assert [
        (each["topic"], each["partition"], each["committed_offset"], each["lag"])
        for each in found["partitions"]
    ] == [(TOPIC, number, MESSAGES, 0) for number in (0, 1)]
    owners = {each["consumer_id"] for each in found["partitions"]}
    assert owners == {f"{consumer['consumer_id']}-0"}
    assert completed[0].endswith("members=0 consumers=1")
    assert completed[-1].split() == [consumer["consumer_id"], f"{TOPIC}:1"]

    left = described(groups, "paper/readers", *asked)
    assert left["consumers"] == []
    assert {each["consumer_id"] for each in left["partitions"]} == {None}
    assert [each["committed_offset"] for each in left["partitions"]] == [MESSAGES, MESSAGES]
    missing = groups("describe", "missing", *asked)
    assert (missing.returncode, missing.stderr) == (1, "logbroker: unknown group 'missing'\n")


def test_an_unreachable_zookeeper_is_reported_once(groups: Run) -> None:
    refused = groups("list", "--zookeeper", "127.0.0.1:1")
    assert (refused.returncode, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert "127.0.0.1:1" in line
