"""Groups of stock clients on one broker: members join, leave and die without loss."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import KafkaAdminClient

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.group_recorder import GroupMember, GroupRecorder, send

LIBRARIES = ("confluent-kafka", "kafka-python", "aiokafka")
PARTITIONS = 6

KILL_SESSION_MS = 10_000
"""As long as the others wait for a member that was killed."""


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("broker")
    with BrokerProcess(folder / "log", "--group-initial-rebalance-delay-ms", "0") as broker:
        yield broker.serve()


@pytest.fixture
def topic(serving: BrokerProcess, request: pytest.FixtureRequest) -> str:
    """A topic of this test's own."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]
    serving.make_topic(name, PARTITIONS)
    return name


@pytest.fixture
def recorder(tmp_path: Path, serving: BrokerProcess, topic: str) -> Iterator[GroupRecorder]:
    with GroupRecorder(tmp_path, serving.bootstrap_servers, group=topic) as recorder:
        yield recorder
        recorder.check()


def places(topic: str) -> list[tuple[str, int]]:
    return [(topic, number) for number in range(PARTITIONS)]


@pytest.mark.parametrize("library", LIBRARIES)
def test_members_of_one_library_join_and_leave_without_loss(
    library: str, recorder: GroupRecorder, topic: str
) -> None:
    first = recorder.member(library, topics=[topic])
    recorder.until_shared(places(topic), first)
    send(recorder.bootstrap_servers, topic, map(str, range(100)), PARTITIONS)
    second = recorder.member(library, topics=[topic])
    recorder.until_shared(places(topic), first, second)
    send(recorder.bootstrap_servers, topic, map(str, range(100, 200)), PARTITIONS)
    first.leave()
    recorder.until_shared(places(topic), second)
    send(recorder.bootstrap_servers, topic, map(str, range(200, 300)), PARTITIONS)
    recorder.until_read(map(str, range(300)))


def test_libraries_share_one_group_and_one_that_is_killed_is_replaced(
    recorder: GroupRecorder, topic: str
) -> None:
    members = [
        recorder.member(library, topics=[topic], session_timeout_ms=KILL_SESSION_MS)
        for library in LIBRARIES
    ]
    recorder.until_shared(places(topic), *members)
    for number, member in enumerate(members[:2]):
        values = [f"{number}-{each}" for each in range(100)]
        send(recorder.bootstrap_servers, topic, values, PARTITIONS)
        member.kill()
        recorder.until_shared(places(topic), *members[number + 1 :])
        recorder.until_read(values)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_rejoining_member_continues_at_the_committed_offset(
    library: str, recorder: GroupRecorder, topic: str
) -> None:
    send(recorder.bootstrap_servers, topic, map(str, range(60)), PARTITIONS)
    first = recorder.member(library, topics=[topic])
    recorder.until_read(map(str, range(60)))
    first.leave()
    send(recorder.bootstrap_servers, topic, map(str, range(60, 120)), PARTITIONS)
    second = recorder.member(library, topics=[topic])
    recorder.until_read(map(str, range(120)))
    # Everything was committed before it left, so nothing comes twice.
    assert sorted(map(int, second.values)) == list(range(60, 120))


@pytest.mark.parametrize(
    ("library", "assignor"),
    [
        ("confluent-kafka", "roundrobin"),
        ("confluent-kafka", "cooperative-sticky"),
        ("kafka-python", "roundrobin"),
        ("kafka-python", "sticky"),
        ("aiokafka", "roundrobin"),
        ("aiokafka", "sticky"),
    ],
)
def test_members_share_by_any_assignor(
    library: str, assignor: str, recorder: GroupRecorder, topic: str
) -> None:
    members = [recorder.member(library, topics=[topic], assignor=assignor)]
    recorder.until_shared(places(topic), *members)
    for number in range(2):
        members.append(recorder.member(library, topics=[topic], assignor=assignor))
        recorder.until_shared(places(topic), *members)
        values = [f"{number}-{each}" for each in range(60)]
        send(recorder.bootstrap_servers, topic, values, PARTITIONS)
        recorder.until_read(values)
    members.pop(0).leave()
    recorder.until_shared(places(topic), *members)
    assert described(recorder)["protocol_data"] == assignor


def test_a_cooperative_member_keeps_its_unchanged_partitions(
    recorder: GroupRecorder, topic: str
) -> None:
    def member() -> GroupMember:
        return recorder.member("confluent-kafka", topics=[topic], assignor="cooperative-sticky")

    first = member()
    recorder.until_shared(places(topic), first)
    second = member()
    recorder.until_shared(places(topic), first, second)
    # Half stayed without a break; half was given up, once.
    spans = [len(each) for each in first.ownerships().values()]
    assert spans == [1] * PARTITIONS
    assert sorted(first.has_now()) == sorted(set(places(topic)) - set(second.has_now()))
    assert len(first.has_now()) == PARTITIONS // 2


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_killed_static_member_gets_its_assignment_back(
    library: str, recorder: GroupRecorder, topic: str
) -> None:
    other = recorder.member("confluent-kafka", topics=[topic], instance_id="one")
    recorder.until_shared(places(topic), other)
    first = recorder.member(library, topics=[topic], instance_id="two")
    recorder.until_shared(places(topic), other, first)
    assignments, had = other.assignments, first.has_now()
    first.kill()
    again = recorder.member(library, topics=[topic], instance_id="two")
    recorder.until_shared(places(topic), other, again)
    send(recorder.bootstrap_servers, topic, map(str, range(60)), PARTITIONS)
    recorder.until_read(map(str, range(60)))
    assert again.has_now() == had
    assert other.assignments == assignments, "the other one noticed"


@pytest.mark.parametrize("library", ["confluent-kafka", "kafka-python"])
def test_a_pattern_subscription_includes_later_topics(
    library: str, recorder: GroupRecorder, topic: str, serving: BrokerProcess
) -> None:
    pattern = f"^{topic}.*"
    options = {"topics": [pattern]} if library == "confluent-kafka" else {"pattern": pattern}
    member = recorder.member(library, **options)
    recorder.until_shared(places(topic), member)
    serving.make_topic(f"{topic}-later", 2)
    more = [(f"{topic}-later", 0), (f"{topic}-later", 1)]
    recorder.until_shared([*places(topic), *more], member)
    send(recorder.bootstrap_servers, f"{topic}-later", ["late"], 1)
    recorder.until_read(["late"])


def described(recorder: GroupRecorder) -> dict[str, Any]:
    """The group, as kafka-python's administrator sees it."""
    with closing(KafkaAdminClient(bootstrap_servers=recorder.bootstrap_servers)) as admin:
        found: dict[str, Any] = admin.describe_groups([recorder.group])[recorder.group]
    return found
