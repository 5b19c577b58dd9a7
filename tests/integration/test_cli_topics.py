import json
import socket
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from logbroker.client import raw
from tests.support.kafka.broker_cluster import NO_LEADER, BrokerCluster
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.logbroker_command import Run, logbroker_command
from tests.support.kafka.zookeeper import SharedZooKeeper
from tests.support.processes.waiting import DEADLINE_S


@pytest.fixture
def topics(broker: BrokerProcess) -> Run:
    """Run `logbroker topics ...` as a process."""
    return logbroker_command(broker.bootstrap_servers, "topics")


def test_a_topic_is_created_listed_described_and_deleted(topics: Run) -> None:
    made = topics("create", "events", "--partitions", "3", "--config", "retention.ms=86400000")
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "created topic events\n")
    assert topics("list").stdout == "events\n"
    assert json.loads(topics("list", "--json").stdout) == [{"name": "events", "partitions": 3}]

    (state,) = json.loads(topics("describe", "events", "--json").stdout)
    assert state["name"] == "events"
    assert state["settings"] == {"retention.ms": "86400000"}
    assert [each["partition"] for each in state["partitions"]] == [0, 1, 2]
    assert {each["leader"] for each in state["partitions"]} == {0}
    described = topics("describe", "events").stdout.splitlines()
    assert described[0].startswith("topic=events id=")
    assert described[0].endswith(" partitions=3 retention.ms=86400000")

    gone = topics("delete", "events")
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "", "deleted topic events\n")
    assert topics("list").stdout == ""


def test_a_partition_is_described_with_offsets_times_and_size(
    topics: Run, broker: BrokerProcess, tmp_path: Path
) -> None:
    assert topics("create", "events", "--partitions", "2").returncode == 0
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    # The latest timestamp is neither at the first nor at the last offset.
    for minute in (10, 12, 11):
        moment = datetime(2025, 11, 21, 8, minute, 0, 250_000, tzinfo=UTC)
        timestamp_ms = round(moment.timestamp() * 1000)
        producer.produce("events", b"value", partition=1, timestamp=timestamp_ms)
    assert producer.flush(DEADLINE_S) == 0
    (state,) = json.loads(topics("describe", "events", "--json").stdout)
    empty, full = state["partitions"]
    assert empty == {
        "partition": 0,
        "leader": 0,
        "replicas": [0],
        "earliest": 0,
        "latest": 0,
        "size_bytes": 0,
        "first_time": None,
        "newest_time": None,
    }
    assert (full["earliest"], full["latest"]) == (0, 3)
    (segment,) = (tmp_path / "log" / "events-1").glob("*.log")
    assert full["size_bytes"] == segment.stat().st_size
    assert full["first_time"] == "2025-11-21T08:10:00.250Z"
    assert full["newest_time"] == "2025-11-21T08:12:00.250Z"

    _, headings, first, second = topics("describe", "events").stdout.splitlines()
    assert headings.split() == [
        *("PARTITION", "LEADER", "REPLICAS", "EARLIEST", "LATEST"),
        *("SIZE-BYTES", "FIRST-TIME", "NEWEST-TIME"),
    ]
    assert first.split() == ["0", "0", "0", "0", "0", "0", "-", "-"]
    assert second.split()[-2:] == [full["first_time"], full["newest_time"]]
    assert second.index(full["first_time"]) == headings.index("FIRST-TIME")


def test_deleted_records_are_not_described(topics: Run, broker: BrokerProcess) -> None:
    topics("create", "events")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for number in range(3):
        producer.produce("events", b"value", timestamp=1_000 * (number + 1))
        assert producer.flush(DEADLINE_S) == 0
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (done,) = admin.delete_records([TopicPartition("events", 0, 2)]).values()
    done.result(DEADLINE_S)
    (state,) = json.loads(topics("describe", "events", "--json").stdout)
    (partition,) = state["partitions"]
    assert (partition["earliest"], partition["latest"]) == (2, 3)
    assert partition["first_time"] == partition["newest_time"] == "1970-01-01T00:00:03.000Z"


@pytest.mark.long
def test_only_the_partitions_of_a_failed_broker_are_unknown(
    tmp_path: Path, zookeeper: SharedZooKeeper
) -> None:
    with BrokerCluster(tmp_path, zookeeper.fresh_chroot(), count=2) as cluster:
        cluster.serve()
        topics = logbroker_command(cluster.bootstrap_servers, "topics")
        assert topics("create", "events", "--partitions", "2").returncode == 0
        cluster.until_leaders("events", [1, 2])
        client = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = Producer(client)
        for partition in (0, 1):
            producer.produce("events", b"value", partition=partition, timestamp=0)
        assert producer.flush(DEADLINE_S) == 0
        # The controller: until its session ends, metadata responses name it.
        gone = AdminClient({**client}).list_topics(timeout=DEADLINE_S).controller_id
        left = {1: 2, 2: 1}[gone]

        def described() -> dict[int, dict[str, Any]]:
            """Return the partitions by broker."""
            result = topics("describe", "events", "--json")
            assert result.returncode == 0, result.stderr
            (state,) = json.loads(result.stdout)
            return {each["replicas"][0]: each for each in state["partitions"]}

        known = described()
        assert {number: each["leader"] for number, each in known.items()} == {1: 1, 2: 2}
        assert {each["latest"] for each in known.values()} == {1}
        unknown = known[gone] | dict.fromkeys(
            ("earliest", "latest", "size_bytes", "first_time", "newest_time"), None
        )
        cluster.brokers[gone].kill()
        found = described()
        assert found[left] == known[left]
        assert found[gone] == unknown | {"leader": found[gone]["leader"]}
        leaders = {left: left, gone: NO_LEADER}
        cluster.until_leaders("events", [leaders[1], leaders[2]], at=[left])
        assert described() == {left: known[left], gone: unknown | {"leader": None}}
        line = topics("describe", "events").stdout.splitlines()[1 + gone]
        assert line.split() == [str(gone - 1), "-", str(gone), "-", "-", "-", "-", "-"]
        with raw.RawCluster(client, timeout_s=5) as reader:
            sizes = raw.log_sizes(
                reader, [raw.TopicPartition("events", number - 1) for number in (1, 2)]
            )
        assert sizes.of == {("events", left - 1): known[left]["size_bytes"]}
        assert sizes.problem is not None
        cluster.brokers[gone].serve()
        cluster.until_leaders("events", [1, 2])
        assert described() == known


def test_without_a_name_all_topics_are_described(topics: Run) -> None:
    assert json.loads(topics("describe", "--json").stdout) == []
    assert topics("describe").stdout == ""
    topics("create", "b")
    topics("create", "a")
    described = json.loads(topics("describe", "--json").stdout)
    assert [state["name"] for state in described] == ["a", "b"]


def test_the_default_partition_count_is_the_brokers(topics: Run) -> None:
    assert topics("create", "b").returncode == 0
    assert topics("create", "a").returncode == 0
    counted = json.loads(topics("list", "--json").stdout)
    assert counted == [{"name": "a", "partitions": 1}, {"name": "b", "partitions": 1}]
    first, second = json.loads(topics("describe", "b", "a", "b", "--json").stdout)
    assert (first["name"], second["name"]) == ("b", "a")
    assert first["settings"] == {}
    assert first["topic_id"] != second["topic_id"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["create", "there"], "TOPIC_ALREADY_EXISTS"),
        (["create", "a/b"], "TOPIC_EXCEPTION"),
        (["create", "new", "--config", "preallocate=true"], "preallocate"),
        (["create", "new", "--config", "flush.ms=soon"], "flush.ms"),
        (["delete", "nowhere"], "UNKNOWN_TOPIC_OR_PART"),
        (["describe", "nowhere"], "UNKNOWN_TOPIC_OR_PART"),
    ],
)
def test_an_error_is_one_line_with_exit_code_one(
    topics: Run, arguments: list[str], message: str
) -> None:
    topics("create", "there")
    refused = topics(*arguments)
    assert refused.returncode == 1
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("logbroker: ")
    assert message in line
    assert topics("list").stdout == "there\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["create"],
        ["create", "t", "--partitions", "0"],
        ["create", "t", "--config", "retention.ms"],
        ["delete"],
        ["rename", "t"],
    ],
)
def test_a_usage_error_has_exit_code_two(topics: Run, arguments: list[str]) -> None:
    misused = topics(*arguments)
    assert misused.returncode == 2
    assert misused.stdout == ""


def test_an_unreachable_cluster_is_reported_in_one_line(topics: Run) -> None:
    with socket.socket() as taken:
        # Bound without listen(): connections are refused.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused = topics("list", "--bootstrap-servers", address)
    assert refused.returncode == 1
    assert refused.stderr == f"logbroker: no broker answers at {address} within 10 s\n"


def test_the_topic_id_is_one(topics: Run) -> None:
    topics("create", "t")
    (state,) = json.loads(topics("describe", "t", "--json").stdout)
    assert state["topic_id"]
    assert uuid.UUID(int=0).hex not in state["topic_id"]
