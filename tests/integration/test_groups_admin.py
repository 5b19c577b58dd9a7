"""Three libraries list, describe, reset and delete consumer groups."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient, MemberToRemove
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaTopicPartition

from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.group_recorder import GroupRecorder, send
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S, until

PLACES = [("events", 0), ("events", 1)]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with twenty messages in each of two partitions of `events`."""
    with BrokerProcess(tmp_path / "log", "--group-initial-rebalance-delay-ms", "0") as broker:
        broker.serve().make_topic("events", 2)
        send(broker.bootstrap_servers, "events", map(str, range(40)), 2)
        yield broker


@pytest.fixture
def recorder(tmp_path: Path, serving: BrokerProcess) -> Iterator[GroupRecorder]:
    with GroupRecorder(tmp_path, serving.bootstrap_servers) as recorder:
        yield recorder
        recorder.check()


@pytest.fixture
def confluent(serving: BrokerProcess) -> AdminClient:
    return AdminClient({"bootstrap.servers": serving.bootstrap_servers})


def committed(confluent: AdminClient, group: str = "readers") -> dict[tuple[str, int], int]:
    asked = [ConsumerGroupTopicPartitions(group)]
    found = confluent.list_consumer_group_offsets(asked)[group].result(DEADLINE_S)
    return {(each.topic, each.partition): each.offset for each in found.topic_partitions}


def alter(confluent: AdminClient, place: TopicPartition) -> KafkaError | None:
    """Set one offset: the error that goes with it."""
    wanted = ConsumerGroupTopicPartitions("readers", [place])
    altered = confluent.alter_consumer_group_offsets([wanted])["readers"].result(DEADLINE_S)
    (answer,) = altered.topic_partitions
    error: KafkaError | None = answer.error
    return error


def test_librdkafka_lists_describes_resets_and_deletes_a_group(
    confluent: AdminClient, recorder: GroupRecorder
) -> None:
    member = recorder.member("confluent-kafka")
    recorder.until_shared(PLACES, member)
    recorder.until_read(map(str, range(40)))
    described = confluent.describe_consumer_groups(["readers"])["readers"].result(DEADLINE_S)
    assert described.state is ConsumerGroupState.STABLE
    assert described.partition_assignor == "range"
    (one,) = described.members
    assert (one.client_id, one.host) == (member.name, "/127.0.0.1")
    assert [(each.topic, each.partition) for each in one.assignment.topic_partitions] == PLACES
    listed = confluent.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(DEADLINE_S)
    assert [each.group_id for each in listed.valid] == ["readers"]
    refusal = alter(confluent, TopicPartition("events", 0, 0))
    assert refusal is not None
    assert refusal.code() == KafkaError.UNKNOWN_MEMBER_ID
    with pytest.raises(KafkaException) as refused:
        confluent.delete_consumer_groups(["readers"])["readers"].result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.leave()
    assert committed(confluent) == {("events", 0): 20, ("events", 1): 20}
    assert alter(confluent, TopicPartition("events", 0, 5)) is None
    assert committed(confluent) == {("events", 0): 5, ("events", 1): 20}
    again = recorder.member("confluent-kafka")
    # Every other message lies in partition 0.
    until(lambda: len(again.values) == 15, "what lies behind the reset is read again")
    again.leave()
    assert list(map(int, again.values)) == list(range(10, 40, 2))
    confluent.delete_consumer_groups(["readers"])["readers"].result(DEADLINE_S)
    assert confluent.list_consumer_groups().result(DEADLINE_S).valid == []
    assert committed(confluent) == {}


def test_kafka_python_lists_describes_resets_and_deletes_a_group(
    serving: BrokerProcess, recorder: GroupRecorder, confluent: AdminClient
) -> None:
    member = recorder.member("kafka-python", instance_id="one")
    recorder.until_shared(PLACES, member)
    recorder.until_read(map(str, range(40)))
    place = KafkaTopicPartition("events", 0)
    with closing(KafkaAdminClient(bootstrap_servers=serving.bootstrap_servers)) as admin:
        (listed,) = admin.list_groups(states_filter=["Stable"], types_filter=["classic"])
        assert (listed["group_id"], listed["group_state"]) == ("readers", "Stable")
        described = admin.describe_groups(["readers"])["readers"]
        (one,) = described["members"]
        assert (one["client_id"], one["group_instance_id"]) == (member.name, "one")
        assert admin.delete_groups(["readers"])["readers"] != "OK"
        member.leave()
        # A static member keeps its place when it closes; an administrator may remove it.
        until(lambda: admin.describe_groups(["readers"])["readers"]["members"], "it is there")
        admin.remove_group_members("readers", [MemberToRemove(group_instance_id="one")])
        assert admin.describe_groups(["readers"])["readers"]["group_state"] == "Empty"
        admin.alter_group_offsets("readers", {place: OffsetAndMetadata(7, "by hand", 0)})
        assert committed(confluent) == {("events", 0): 7, ("events", 1): 20}
        admin.delete_group_offsets("readers", [place])
        assert committed(confluent) == {("events", 1): 20}
        admin.delete_groups(["readers"])
        assert admin.list_groups() == []


def test_aiokafka_lists_and_describes_a_group(
    serving: BrokerProcess, recorder: GroupRecorder
) -> None:
    member = recorder.member("aiokafka")
    recorder.until_shared(PLACES, member)
    recorder.until_read(map(str, range(40)))
    member.leave()

    async def ask() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=serving.bootstrap_servers)
        await admin.start()
        try:
            assert await admin.list_consumer_groups() == [("readers", "consumer")]
            (answer,) = await admin.describe_consumer_groups(["readers"])
            assert [(group[1], group[2]) for group in answer.groups] == [("readers", "Empty")]
            offsets = await admin.list_consumer_group_offsets("readers")
            assert {each.offset for each in offsets.values()} == {20}
        finally:
            await admin.close()

    asyncio.run(ask())


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"old"), ("latest", b"new")])
def test_a_new_group_begins_at_the_consumers_reset_offset(
    reset: str, expected: bytes, serving: BrokerProcess
) -> None:
    serving.make_topic("more")
    send(serving.bootstrap_servers, "more", ["old"], 1)
    settings = {
        "bootstrap.servers": serving.bootstrap_servers,
        "group.id": f"new {reset}",
        "auto.offset.reset": reset,
    }
    found: list[bytes | None] = []
    with closing(Consumer(settings)) as consumer:
        consumer.subscribe(["more"])

        def reads() -> bool:
            # What is sent before the consumer has found the end is not for it.
            send(serving.bootstrap_servers, "more", ["new"], 1)
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                found.append(message.value())
            return bool(found)

        until(reads, "a message comes")
    assert found == [expected]


def test_groups_are_counted_by_state(tmp_path: Path) -> None:
    port = free_port()
    options = ("--group-initial-rebalance-delay-ms", "0", "--metrics-listen", f"127.0.0.1:{port}")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.serve().make_topic("events", 2)
        with GroupRecorder(tmp_path, broker.bootstrap_servers) as recorder:
            member = recorder.member("confluent-kafka")
            recorder.until_shared(PLACES, member)
            assert scrape(port)['logbroker_groups{state="Stable"}'] == 1
            assert scrape(port)["logbroker_group_members"] == 1
            assert scrape(port)["logbroker_group_rebalances_total"] >= 1
            member.leave()
            until(lambda: scrape(port)['logbroker_groups{state="Empty"}'] == 1, "it has left")
            assert scrape(port)['logbroker_groups{state="Stable"}'] == 0
            assert scrape(port)["logbroker_group_members"] == 0
