"""A topic is deleted while clients use it: they get errors, and its disk space is freed."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from kafka.protocol.admin.topics import DeleteTopicsRequest, DeleteTopicsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    RawConnection,
    batch_of,
    produce_request,
)
from tests.support.processes.waiting import until

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_REQUEST = 42
UNKNOWN_TOPIC_ID = 100
DELETE_VERSION = 1
WAIT_MS = 300_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    options = ("--file-delete-delay-s", "0.1", "--topic-config", "flush.ms=3600000")
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log", *options) as broker:
        yield broker.serve()


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: BrokerProcess) -> str:
    name = str(request.node.name)
    broker.make_topic(name)
    return name


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


def delete_request(topic: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)


def delete(connection: RawConnection, topic: str) -> int:
    answer = connection.ask(delete_request(topic), DeleteTopicsResponse, DELETE_VERSION)
    (result,) = answer.responses
    return int(result.error_code)


def open_files(broker: BrokerProcess, topic: str) -> list[str]:
    names = []
    for descriptor in Path(f"/proc/{broker.pid}/fd").iterdir():
        try:
            names.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue
    return [name for name in names if f"/{topic}-0" in name]


def test_delayed_produces_of_a_deleted_topic_fail(
    connection: RawConnection, admin: RawConnection, topic: str
) -> None:
    sent = connection.produce(topic, batch_of(b"one"), acks=ACKS_ALL)
    connection.fetch(topic, 0, max_wait_ms=WAIT_MS)
    with RawConnection(f"127.0.0.1:{admin.socket.getpeername()[1]}") as other:
        # Answered only once the broker has the requests before it.
        until(lambda: end_offset(other, topic) == 1, "the message is in the log")
    assert delete(admin, topic) == 0
    assert connection.produced() == (sent, UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert connection.fetched().error_code == UNKNOWN_TOPIC_OR_PARTITION


def end_offset(connection: RawConnection, topic: str) -> int:
    """How far the log goes: behind its end a fetch is refused, before it it waits for a flush."""
    offset = 0
    while True:
        connection.fetch(topic, offset)
        if connection.fetched().error_code:
            return offset - 1
        offset += 1


def test_a_produce_request_and_a_following_deletion_both_get_responses(
    connection: RawConnection, topic: str
) -> None:
    produced = connection.encode(produce_request(topic, batch_of(b"one"), acks=ACKS_ALL), 9)
    # In one piece, so that the broker meets both in one turn.
    connection.socket.sendall(produced + connection.encode(delete_request(topic), DELETE_VERSION))
    assert connection.produced()[1] == UNKNOWN_TOPIC_OR_PARTITION
    _, answer = connection.receive(DeleteTopicsResponse, DELETE_VERSION)
    assert [result.error_code for result in answer.responses] == [0]


def test_a_deletion_with_unremovable_folders_completes_delayed_requests(
    broker: BrokerProcess, connection: RawConnection, admin: RawConnection, topic: str
) -> None:
    sent = connection.produce(topic, batch_of(b"one"), acks=ACKS_ALL)
    until(lambda: end_offset(admin, topic) == 1, "the message is in the log")
    shutil.rmtree(broker.data_dir / f"{topic}-0")
    assert delete(admin, topic) == 0
    assert connection.produced() == (sent, UNKNOWN_TOPIC_OR_PARTITION, -1)
    broker.until_says(f"folders are kept until restart topic={topic}")


def test_the_files_of_a_deleted_topic_are_removed_while_its_producer_is_connected(
    broker: BrokerProcess, connection: RawConnection, admin: RawConnection, topic: str
) -> None:
    connection.produce(topic, batch_of(b"one"), acks=ACKS_LEADER)
    assert connection.produced()[1] == 0
    assert open_files(broker, topic)
    assert delete(admin, topic) == 0
    until(lambda: not open_files(broker, topic), "the files are closed")


def test_a_topic_named_twice_is_not_deleted(admin: RawConnection, topic: str) -> None:
    request = DeleteTopicsRequest(topic_names=[topic, topic], timeout_ms=30_000)
    answer = admin.ask(request, DeleteTopicsResponse, DELETE_VERSION)
    assert [result.error_code for result in answer.responses] == [INVALID_REQUEST] * 2
    assert topic_id(admin, topic) is not None


def test_a_deletion_by_name_or_by_id_returns_both(admin: RawConnection, topic: str) -> None:
    by_name, by_id = topic_id(admin, topic), uuid4()
    asked = [
        DeleteTopicsRequest.DeleteTopicState(name=topic, topic_id=UUID(int=0)),
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=by_id),
    ]
    request = DeleteTopicsRequest(topics=asked, timeout_ms=30_000)
    answer = admin.ask(request, DeleteTopicsResponse, 6)
    assert [(each.name, each.topic_id, each.error_code) for each in answer.responses] == [
        (topic, by_name, 0),
        (None, by_id, UNKNOWN_TOPIC_ID),
    ]


def test_a_deletion_by_name_and_id_deletes_nothing(admin: RawConnection, topic: str) -> None:
    asked = [
        DeleteTopicsRequest.DeleteTopicState(name=topic, topic_id=uuid4()),
        DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=UUID(int=0)),
    ]
    request = DeleteTopicsRequest(topics=asked, timeout_ms=30_000)
    answer = admin.ask(request, DeleteTopicsResponse, 6)
    assert [each.error_code for each in answer.responses] == [INVALID_REQUEST] * 2
    assert topic_id(admin, topic) is not None


def topic_id(connection: RawConnection, topic: str) -> UUID | None:
    """The id of a topic that is there."""
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic)]
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
    (found,) = connection.ask(request, MetadataResponse, 10).topics
    return None if found.error_code else found.topic_id


def test_a_topic_chooses_when_its_files_are_removed(
    broker: BrokerProcess, admin: RawConnection, topic: str
) -> None:
    other = f"{topic}-kept"
    broker.make_topic(other, file_delete_delay_ms="3600000")
    assert (delete(admin, other), delete(admin, topic)) == (0, 0)
    until(lambda: not list(broker.data_dir.glob(f"{topic}-0.*-delete")), "its folder is removed")
    assert len(list(broker.data_dir.glob(f"{other}-0.*-delete"))) == 1
