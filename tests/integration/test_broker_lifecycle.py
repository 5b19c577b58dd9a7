"""Start, stop and restart: stored data, rejected starts and recovery metrics."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from logbroker.embedded import ChildDidNotStart, EmbeddedBroker
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import ACKS_ALL, ACKS_LEADER, RawConnection, batch_of
from tests.support.kafka.stock_clients import ConfluentClient, ReadRecord, sample_records
from tests.support.processes.waiting import DEADLINE_S

START_MS = 1_700_000_000_000
COUNT = 500


def fill(broker: BrokerProcess, *topics: str) -> None:
    client = ConfluentClient(broker.bootstrap_servers)
    for topic in topics:
        client.produce(topic, sample_records(COUNT, START_MS), codec="snappy", is_idempotent=True)


def everything(broker: BrokerProcess, topic: str) -> list[ReadRecord]:
    return ConfluentClient(broker.bootstrap_servers).read(topic, 0, COUNT)


def clean_marker(broker: BrokerProcess) -> Path:
    return broker.data_dir / ".kafka_cleanshutdown"


def by_sigterm(broker: BrokerProcess) -> int:
    return broker.stop(signal.SIGTERM)


def by_ctrl_c(broker: BrokerProcess) -> int:
    return broker.stop(signal.SIGINT)


def by_the_end_of_stdin(broker: BrokerProcess) -> int:
    broker.close_stdin()
    return broker.wait()


@pytest.mark.parametrize("stop", [by_sigterm, by_ctrl_c, by_the_end_of_stdin])
def test_a_clean_restart_keeps_everything(
    tmp_path: Path, stop: Callable[[BrokerProcess], int]
) -> None:
    broker = BrokerProcess(tmp_path / "log", "--stop-on-stdin-close")
    with broker.serve():
        broker.make_topic("events", segment_bytes="10000")
        fill(broker, "events", "made-by-asking")
        before = {topic: everything(broker, topic) for topic in ("events", "made-by-asking")}
        assert len(before["events"]) == COUNT
        assert not clean_marker(broker).exists()
        assert stop(broker) == 0
        assert clean_marker(broker).exists()

        broker.serve()
        assert not clean_marker(broker).exists()
        assert "recovered" not in broker.output
        for topic, records in before.items():
            assert everything(broker, topic) == records
        fill(broker, "events")
        assert len(everything(broker, "events")) == COUNT


def test_a_crash_leaves_no_clean_marker_and_loses_nothing(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "log")
    with broker.serve():
        fill(broker, "events")
        before = everything(broker, "events")
        broker.kill()
        assert not clean_marker(broker).exists()
        broker.serve()
        assert "recovered events-0" in broker.output
        assert everything(broker, "events") == before


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stopped", "killed"])
def test_an_idempotent_producer_is_known_after_a_restart(
    tmp_path: Path, end: Callable[[BrokerProcess], object]
) -> None:
    broker = BrokerProcess(tmp_path / "log")
    batches = [
        batch_of(b"%d" % number, producer_id=4711, producer_epoch=0, base_sequence=number)
        for number in range(3)
    ]
    with broker.serve():
        broker.make_topic("events")
        assert [produced(broker, batch) for batch in batches] == [(0, 0), (0, 1), (0, 2)]
        end(broker)
        broker.serve()
        # The answer to the last one was lost, say: it is sent again, and stays the only one.
        assert produced(broker, batches[2]) == (0, 2)
        skipping = batch_of(b"9", producer_id=4711, producer_epoch=0, base_sequence=9)
        assert produced(broker, skipping) == (45, -1)  # OUT_OF_ORDER_SEQUENCE_NUMBER
        following = batch_of(b"3", producer_id=4711, producer_epoch=0, base_sequence=3)
        assert produced(broker, following) == (0, 3)


def produced(broker: BrokerProcess, batch: bytes) -> tuple[int, int]:
    """Produce to `events` and wait: error code and base offset."""
    with RawConnection(broker.bootstrap_servers) as connection:
        connection.produce("events", batch, acks=ACKS_ALL)
        return connection.produced()[1:]


def test_topics_ids_settings_and_deletions_survive_a_crash(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "log", "--file-delete-delay-s", "3600")
    with broker.serve():
        broker.make_topic("kept", 3, retention_ms="12345")
        broker.make_topic("gone")
        fill(broker, "gone")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        place = TopicPartition("trimmed", 0, 7)
        fill(broker, "trimmed")
        admin.delete_records([place])[place].result(DEADLINE_S)
        admin.delete_topics(["gone"])["gone"].result(DEADLINE_S)
        before = admin.list_topics(timeout=DEADLINE_S)
        broker.kill()

        broker.serve()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        after = admin.list_topics(timeout=DEADLINE_S)
        assert after.cluster_id == before.cluster_id
        assert {name: len(topic.partitions) for name, topic in after.topics.items()} == {
            "kept": 3,
            "trimmed": 1,
        }
        # The files of a deleted topic wait no longer than until the next start.
        assert not list(broker.data_dir.glob("gone*"))


def test_a_second_broker_on_a_data_directory_is_rejected(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "log").serve() as first,
        BrokerProcess(tmp_path / "log", name="second") as second,
    ):
        second.launch()
        assert second.wait() == 1
        (line,) = second.output.splitlines()
        assert line.startswith("logbroker: ")
        assert str(tmp_path / "log") in line
        fill(first, "events")
        assert len(everything(first, "events")) == COUNT


def test_a_data_directory_belongs_to_one_broker_id(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log", "--broker-id", "3") as owner:
        assert owner.serve().stop() == 0
    with BrokerProcess(tmp_path / "log", "--broker-id", "4", name="other") as other:
        other.launch()
        assert other.wait() == 1
        (line,) = other.output.splitlines()
        assert line.startswith("logbroker: ")
        assert "3" in line
        assert "4" in line
    # A rejected start changes nothing: the clean marker of the owner still exists.
    assert clean_marker(owner).exists()


def test_a_port_in_use_is_an_error(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "one").serve() as first,
        BrokerProcess(tmp_path / "two", port=first.port, name="second") as second,
    ):
        second.launch()
        assert second.wait() == 1
        assert f"cannot listen on 127.0.0.1:{first.port}" in second.output


def test_acknowledged_records_survive_a_stop_under_load(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "log", "--topic-config", "flush.ms=300")
    with broker.serve():
        broker.make_topic("events")
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.produce("events", batch_of(b"one"), acks=ACKS_LEADER)
            assert connection.produced()[1:] == (0, 0)
            # Appended and not flushed: a clean end flushes it.
            assert broker.stop() == 0
        broker.serve()
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.fetch("events", 0)
            assert [record.value for record in connection.fetched().records] == [b"one"]


def test_an_embedded_broker_says_why_it_did_not_start(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log").serve():
        second = EmbeddedBroker(tmp_path / "log")
        with pytest.raises(ChildDidNotStart, match=str(tmp_path / "log")):
            second.start()
        assert second.exit_code == 1


def test_other_users_cannot_read_the_files_of_a_broker(tmp_path: Path) -> None:
    previous = os.umask(0o022)
    try:
        with BrokerProcess(tmp_path / "log").serve() as broker:
            broker.make_topic("events")
            with RawConnection(broker.bootstrap_servers) as connection:
                connection.produce("events", batch_of(b"one"), acks=ACKS_LEADER)
                assert connection.produced()[1:] == (0, 0)
            created = [tmp_path / "log", *(tmp_path / "log").rglob("*")]
            assert len(created) > 3
            assert [path for path in created if path.stat().st_mode & 0o077] == []
    finally:
        os.umask(previous)
