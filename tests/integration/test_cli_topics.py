import json
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from logbroker.embedded import EmbeddedBroker

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def topics(broker: EmbeddedBroker) -> Run:
    """`logbroker topics ...` as a process, told by the environment where the broker is."""
    environment = {**os.environ, "LOGBROKER_BOOTSTRAP_SERVERS": broker.bootstrap_servers}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "logbroker", "topics", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def test_a_topic_is_created_listed_described_and_deleted(
    topics: Run, broker: EmbeddedBroker
) -> None:
    made = topics("create", "events", "--partitions", "3", "--config", "retention.ms=86400000")
    assert (made.returncode, made.stdout, made.stderr) == (0, "", "created topic events\n")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(5):
        producer.produce("events", b"value", partition=1)
    assert producer.flush(30) == 0

    assert topics("list").stdout == "events\n"
    assert json.loads(topics("list", "--json").stdout) == [{"name": "events", "partitions": 3}]

    (state,) = json.loads(topics("describe", "events", "--json").stdout)
    assert state["name"] == "events"
    assert state["settings"] == {"retention.ms": "86400000"}
    assert state["partitions"] == [
        {"partition": number, "leader": 0, "earliest": 0, "latest": 5 * (number == 1)}
        for number in range(3)
    ]
    told = topics("describe", "events").stdout.splitlines()
    assert told[0].startswith("topic=events id=")
    assert told[0].endswith(" partitions=3 retention.ms=86400000")
    assert told[2] == "  partition=1 leader=0 earliest=0 latest=5"

    gone = topics("delete", "events")
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "", "deleted topic events\n")
    assert topics("list").stdout == ""


def test_a_topic_without_a_partition_count_gets_the_brokers(topics: Run) -> None:
    assert topics("create", "b").returncode == 0
    assert topics("create", "a").returncode == 0
    counted = json.loads(topics("list", "--json").stdout)
    assert counted == [{"name": "a", "partitions": 1}, {"name": "b", "partitions": 1}]
    first, second = json.loads(topics("describe", "b", "a", "b", "--json").stdout)
    assert (first["name"], second["name"]) == ("b", "a")
    assert first["settings"] == {}
    assert first["topic_id"] != second["topic_id"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["create", "there"], "TOPIC_ALREADY_EXISTS"),
        (["create", "a/b"], "TOPIC_EXCEPTION"),
        (["create", "new", "--config", "cleanup.policy=compact"], "cleanup.policy"),
        (["create", "new", "--config", "flush.ms=soon"], "flush.ms"),
        (["delete", "nowhere"], "UNKNOWN_TOPIC_OR_PART"),
        (["describe", "nowhere"], "UNKNOWN_TOPIC_OR_PART"),
    ],
)
def test_a_refusal_is_one_line_and_ends_with_one(
    topics: Run, arguments: list[str], said: str
) -> None:
    topics("create", "there")
    refused = topics(*arguments)
    assert refused.returncode == 1
    assert refused.stdout == ""
    (line,) = refused.stderr.splitlines()
    assert line.startswith("logbroker: ")
    assert said in line
    assert topics("list").stdout == "there\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["create"],
        ["create", "t", "--partitions", "0"],
        ["create", "t", "--config", "retention.ms"],
        ["describe"],
        ["delete"],
        ["rename", "t"],
    ],
)
def test_misuse_ends_with_two(topics: Run, arguments: list[str]) -> None:
    misused = topics(*arguments)
    assert misused.returncode == 2
    assert misused.stdout == ""


def test_a_cluster_that_is_not_there_is_named_in_one_line(topics: Run) -> None:
    with socket.socket() as taken:
        # Bound and not listening: every attempt to connect is refused.
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
