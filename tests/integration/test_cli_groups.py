"""`logbroker groups` with a broker and stock consumers."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.committed_offsets import commit_offsets
from tests.support.kafka.logbroker_command import Run, logbroker_command
from tests.support.processes.waiting import DEADLINE_S, until

TOPIC = "clicks"
START_MS = 1_763_712_000_000
"""2025-11-21T08:00:00Z; message n of a partition is n seconds later."""

MESSAGES = (4, 2)
"""Messages per partition."""


@pytest.fixture
def groups(broker: BrokerProcess) -> Run:
    """Run `logbroker groups ...` as a process."""
    return logbroker_command(broker.bootstrap_servers, "groups")


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    """Create a topic with messages in two partitions."""
    config = {"bootstrap.servers": broker.bootstrap_servers}
    admin = AdminClient({**config})
    admin.create_topics([NewTopic(TOPIC, len(MESSAGES))])[TOPIC].result(DEADLINE_S)
    producer = Producer(config)
    for partition, count in enumerate(MESSAGES):
        for number in range(count):
            timestamp_ms = START_MS + 1_000 * number
            producer.produce(TOPIC, b"click", partition=partition, timestamp=timestamp_ms)
    assert producer.flush(DEADLINE_S) == 0
    return TOPIC


def commit(broker: BrokerProcess, group: str, *offsets: int, topic: str = TOPIC) -> None:
    """Commit offsets for partitions 0, 1, ... without joining the group."""
    places = [TopicPartition(topic, number, offset) for number, offset in enumerate(offsets)]
    commit_offsets(broker.bootstrap_servers, group, places)


@contextmanager
def member(broker: BrokerProcess, group: str, client_id: str) -> Iterator[Consumer]:
    """Yield a member that has read all of its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": client_id,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([TOPIC])
    seen = []

    def has_read_all() -> bool:
        seen.append(consumer.poll(0.1))
        return sum(map(bool, seen)) == sum(MESSAGES)

    until(has_read_all, "all")
    yield consumer
    consumer.close()


def described(groups: Run, *arguments: str) -> list[dict[str, Any]]:
    completed = groups("describe", *arguments, "--json")
    assert completed.returncode == 0, completed.stderr
    found: list[dict[str, Any]] = json.loads(completed.stdout)
    return found


def committed(groups: Run, group: str) -> dict[int, int | None]:
    (found,) = described(groups, group)
    return {each["partition"]: each["committed_offset"] for each in found["partitions"]}


def test_an_active_group_is_described_with_lag_and_owners(
    groups: Run, broker: BrokerProcess, topic: str
) -> None:
    with member(broker, "readers", "reader-1") as consumer:
        consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
        (found,) = described(groups, "readers")
        completed = groups("describe", "readers").stdout.splitlines()
    (who,) = found["members"]
    partitions = found.pop("partitions")
    assert found == {
        "group": "readers",
        "state": "Stable",
        "assignor": "range",
        "coordinator": 0,
        "members": [who],
        "consumers": None,
    }
    assert who["member_id"].startswith("reader-1-")
    assert who["instance_id"] is None
    assert who["client_id"] == "reader-1"
    assert "127.0.0.1" in who["host"]
    assert who["partitions"] == [{"topic": topic, "partition": number} for number in (0, 1)]
    owner = {"consumer_id": who["member_id"], "host": who["host"], "client_id": "reader-1"}
    assert partitions == [
        {
            "topic": topic,
            "partition": 0,
            "committed_offset": 3,
            "log_end_offset": 4,
            "lag": 1,
            **owner,
        },
        {
            "topic": topic,
            "partition": 1,
            "committed_offset": None,
            "log_end_offset": 2,
            "lag": None,
            **owner,
        },
    ]
    headline, headings, first, second, member_headings, only = completed
    assert headline == "group=readers state=Stable assignor=range coordinator=0 members=1"
    assert headings.split() == [
        *("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET"),
        *("LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    ]
    assert first.split() == [topic, "0", "3", "4", "1", *owner.values()]
    assert second.split() == [topic, "1", "-", "2", "-", *owner.values()]
    assert member_headings.split()[0] == "MEMBER"
    assert only.split()[-1] == f"{topic}:0,1"


def test_a_group_without_members_keeps_its_offsets(
    groups: Run, broker: BrokerProcess, topic: str
) -> None:
    with member(broker, "readers", "reader-1") as consumer:
        consumer.commit(asynchronous=False)
    commit(broker, "bookmarks", 1)
    listed = groups("list", "--json")
    assert json.loads(listed.stdout) == [
        {"group": name, "state": "Empty", "consumers": None} for name in ("bookmarks", "readers")
    ]
    assert groups("list").stdout.splitlines() == [
        "GROUP      STATE",
        "bookmarks  Empty",
        "readers    Empty",
    ]
    bookmarks, readers = described(groups)
    assert (bookmarks["group"], readers["group"]) == ("bookmarks", "readers")
    assert [each["lag"] for each in readers["partitions"]] == [0, 0]
    assert [each["lag"] for each in bookmarks["partitions"]] == [3]
    assert readers["members"] == bookmarks["members"] == []


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (["--to-earliest"], {0: 1, 1: 0}),
        (["--to-latest"], {0: 4, 1: 2}),
        (["--to-offset", "1"], {0: 1, 1: 1}),
        (["--to-time", "2025-11-21T08:00:02Z"], {0: 2, 1: 2}),
        (["--to-time", "2025-11-21T10:00:01+02:00"], {0: 1, 1: 1}),
    ],
)
def test_a_reset_is_a_dry_run_unless_executed(
    groups: Run, broker: BrokerProcess, topic: str, target: list[str], expected: dict[int, int]
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 1)]).values()
    deleted.result(DEADLINE_S)
    commit(broker, "readers", 3, 1)
    asked = ("reset", "readers", *target, "--topic", topic, "--json")
    shown = groups(*asked)
    assert shown.returncode == 0, shown.stderr
    assert "--execute" in shown.stderr
    assert json.loads(shown.stdout) == [
        {
            "topic": topic,
            "partition": number,
            "committed_offset": before,
            "new_offset": expected[number],
        }
        for number, before in enumerate((3, 1))
    ]
    assert committed(groups, "readers") == {0: 3, 1: 1}
    done = groups(*asked, "--execute")
    assert (done.returncode, done.stdout) == (0, shown.stdout)
    assert committed(groups, "readers") == expected


def test_an_offset_out_of_range_is_clamped(groups: Run, broker: BrokerProcess, topic: str) -> None:
    commit(broker, "readers", 0, 0)
    done = groups("reset", "readers", "--to-offset", "3", "--all-topics", "--execute")
    assert done.stdout.splitlines() == [
        "TOPIC   PARTITION  CURRENT-OFFSET  NEW-OFFSET",
        "clicks  0          0               3",
        "clicks  1          0               2",
    ]
    assert done.stderr.splitlines() == [
        "partition 1 of clicks has no offset 3; the nearest is 2",
        "done",
    ]
    assert committed(groups, "readers") == {0: 3, 1: 2}


def test_only_selected_partitions_are_reset(groups: Run, broker: BrokerProcess, topic: str) -> None:
    commit(broker, "readers", 3, 1)
    done = groups("reset", "readers", "--to-earliest", "--topic", f"{topic}:1", "--execute")
    assert done.returncode == 0, done.stderr
    assert committed(groups, "readers") == {0: 3, 1: 0}
    # All partitions with a committed offset, and no others.
    commit(broker, "half", 3)
    done = groups("reset", "half", "--to-earliest", "--all-topics", "--execute")
    assert committed(groups, "half") == {0: 0}


def test_resetting_offsets_creates_a_group(groups: Run, topic: str) -> None:
    done = groups("reset", "later", "--to-latest", "--topic", topic, "--execute")
    assert done.returncode == 0, done.stderr
    assert committed(groups, "later") == {0: 4, 1: 2}


def test_a_group_with_members_cannot_be_reset(
    groups: Run, broker: BrokerProcess, topic: str
) -> None:
    with member(broker, "readers", "reader-1") as consumer:
        consumer.commit(asynchronous=False)
        refused = groups("reset", "readers", "--to-earliest", "--topic", topic, "--execute")
        kept = groups("delete", "readers")
        assert committed(groups, "readers") == {0: 4, 1: 2}
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert refused.stderr == (
        "logbroker: group 'readers' is Stable, members: 1; offsets can be reset only "
        "in a group without members\n"
    )
    assert kept.returncode == 1
    (line,) = kept.stderr.splitlines()
    assert "NON_EMPTY_GROUP" in line


def test_a_group_is_deleted_with_its_offsets(
    groups: Run, broker: BrokerProcess, topic: str
) -> None:
    commit(broker, "readers", 1)
    gone = groups("delete", "readers")
    assert (gone.returncode, gone.stdout, gone.stderr) == (0, "", "deleted group readers\n")
    assert json.loads(groups("list", "--json").stdout) == []
    missing = groups("describe", "readers")
    assert missing.returncode == 1
    assert missing.stderr == "logbroker: unknown group 'readers'\n"


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (["--topic", "nowhere"], "unknown topic 'nowhere'"),
        (["--topic", "clicks:7"], "unknown partition 7 of topic 'clicks'"),
        (["--all-topics"], "group 'new' has no committed offsets; choose topics by name"),
    ],
)
def test_unknown_groups_and_partitions_cannot_be_reset(
    groups: Run, topic: str, choice: list[str], message: str
) -> None:
    refused = groups("reset", "new", "--to-earliest", *choice, "--execute")
    assert refused.returncode == 1
    assert (refused.stdout, refused.stderr) == ("", f"logbroker: {message}\n")
