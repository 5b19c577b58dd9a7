"""Groups of stock clients on one broker: they share, come, go and die, and miss nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from group_recorder import GroupRecorder, send
from processes import BrokerProcess

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
def test_members_of_one_library_come_and_go_and_miss_nothing(
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
