"""Prometheus metrics reflect what stock clients and invalid clients did."""

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.consumer.group import JoinGroupRequest, JoinGroupResponse
from kafka.protocol.consumer.offsets import ListOffsetsRequest, ListOffsetsResponse
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from logbroker.server.metrics.families import FAMILIES, PREFIX
from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import ACKS_ALL, ACKS_LEADER, RawConnection, batch_of
from tests.support.kafka.stock_clients import ConfluentClient, sample_records
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import DEADLINE_S, until

COUNT = 500
START_MS = 1_700_000_000_000
MISUSED = 2


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, port: int) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "log", "--metrics-port", str(port)) as broker:
        yield broker.serve()


def traffic(page: dict[str, float], topic: str) -> dict[str, float]:
    names = ("messages_in", "bytes_in", "messages_out", "bytes_out")
    return {name: page[f'logbroker_{name}_total{{topic="{topic}"}}'] for name in names}


def errors(page: dict[str, float]) -> dict[tuple[str, str], float]:
    """The count of each error, by API and error."""
    pattern = re.compile(r'logbroker_request_errors_total\{api="(\w+)",error="(\w+)"\}')
    found = ((pattern.fullmatch(name), value) for name, value in page.items())
    return {(match[1], match[2]): value for match, value in found if match}


def test_a_stock_clients_messages_are_counted_in_and_out(broker: BrokerProcess, port: int) -> None:
    for topic, codec in (("plain", "none"), ("small", "zstd")):
        broker.make_topic(topic)
        client = ConfluentClient(broker.bootstrap_servers)
        client.produce(topic, sample_records(COUNT, START_MS), codec=codec, is_idempotent=True)
        before = traffic(scrape(port), topic)
        assert before["messages_in"] == COUNT
        assert before["messages_out"] == before["bytes_out"] == 0
        assert len(client.read(topic, 0, COUNT)) == COUNT

    page = scrape(port)
    for topic in ("plain", "small"):
        place = f'{{partition="0",topic="{topic}"}}'
        size_bytes = (broker.data_dir / f"{topic}-0" / f"{0:020}.log").stat().st_size
        assert traffic(page, topic) == {
            "messages_in": COUNT,
            "bytes_in": size_bytes,
            "messages_out": COUNT,
            "bytes_out": size_bytes,
        }
        assert page[f"logbroker_log_size_bytes{place}"] == size_bytes
        assert page[f"logbroker_log_start_offset{place}"] == 0
        assert page[f"logbroker_log_end_offset{place}"] == COUNT
        assert page[f"logbroker_high_watermark{place}"] == COUNT
        assert page[f'logbroker_topic_partitions{{topic="{topic}"}}'] == 1
        assert page[f'logbroker_topic_size_bytes{{topic="{topic}"}}'] == size_bytes
        assert page[f'logbroker_topic_messages{{topic="{topic}"}}'] == COUNT
        assert page[f'logbroker_topic_unflushed_messages{{topic="{topic}"}}'] == 0
    assert page["logbroker_partitions_led"] == 2
    assert not errors(page)
    for api in ("Produce", "Fetch", "Metadata", "ApiVersions", "CreateTopics"):
        assert page[f'logbroker_requests_total{{api="{api}"}}'] >= 1


def test_requests_flushes_and_connections_are_counted_one_by_one(
    broker: BrokerProcess, port: int
) -> None:
    broker.make_topic("events")
    # The client that made it leaves when it likes.
    until(lambda: scrape(port)["logbroker_connections"] == 0, "all connections are closed")
    before = scrape(port)
    batch = batch_of(b"a", b"b", b"c")
    with RawConnection(broker.bootstrap_servers) as connection:
        for _ in range(5):
            connection.produce("events", batch, acks=ACKS_ALL)
            assert connection.produced()[1] == 0
        # From inside a batch on, the whole batch comes.
        connection.fetch("events", 4)
        assert len(connection.fetched().records) == 12
        page = scrape(port)
        assert page["logbroker_connections"] == before["logbroker_connections"] + 1
    with RawConnection(broker.bootstrap_servers) as strange:
        strange.socket.sendall(b"nonsense")
        strange.until_closed()
    after = scrape(port)

    grown = {name: after[name] - before.get(name, 0) for name in after}
    assert grown['logbroker_requests_total{api="Produce"}'] == 5
    assert grown['logbroker_requests_total{api="Fetch"}'] == 1
    for bucket, count in (("Produce", 5), ("Fetch", 1)):
        assert grown[f'logbroker_request_seconds_count{{api="{bucket}"}}'] == count
        assert grown[f'logbroker_request_seconds_bucket{{api="{bucket}",le="+Inf"}}'] == count
        assert grown[f'logbroker_request_seconds_sum{{api="{bucket}"}}'] > 0
    assert traffic(grown, "events") == {
        "messages_in": 15,
        "bytes_in": 5 * len(batch),
        "messages_out": 11,
        "bytes_out": 4 * len(batch),
    }
    assert grown["logbroker_flushes_total"] == 5
    assert grown["logbroker_flush_seconds_count"] == 5
    assert grown["logbroker_flush_seconds_sum"] > 0
    assert grown["logbroker_connections_opened_total"] == 2
    assert grown["logbroker_connections_protocol_errors_total"] == 1


def test_errors_are_counted_by_api_and_name(broker: BrokerProcess, port: int) -> None:
    broker.make_topic("events")
    absent = MetadataRequest.MetadataRequestTopic(name="absent")
    group = JoinGroupRequest(
        group_id="", session_timeout_ms=6000, rebalance_timeout_ms=6000, member_id="",
        protocol_type="consumer", protocols=[],
    )  # fmt: skip
    wanted = ListOffsetsRequest.ListOffsetsTopic
    places = [wanted.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in (0, 8, 9)]
    offsets = ListOffsetsRequest(replica_id=-1, topics=[wanted(name="events", partitions=places)])
    damaged = bytearray(batch_of(b"x"))
    damaged[-1] ^= 1
    with RawConnection(broker.bootstrap_servers) as connection:
        for _ in range(2):
            connection.produce("events", batch_of(b"x"), acks=ACKS_LEADER, partition=9)
            assert connection.produced()[1] == 3
        for batch in (batch_of(b"x"), bytes(damaged), bytes(damaged)):
            connection.produce("events", batch, acks=ACKS_LEADER)
        assert [connection.produced()[1] for _ in range(3)] == [0, 2, 2]
        connection.fetch("events", 100)
        assert connection.fetched().error_code == 1
        unwanted = MetadataRequest(topics=[absent], allow_auto_topic_creation=False)
        connection.ask(unwanted, MetadataResponse, 9)
        connection.ask(group, JoinGroupResponse, 2)
        connection.ask(offsets, ListOffsetsResponse, 2)
    assert errors(scrape(port)) == {
        ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
        ("Produce", "CORRUPT_MESSAGE"): 2,
        ("Fetch", "OFFSET_OUT_OF_RANGE"): 1,
        ("Metadata", "UNKNOWN_TOPIC_OR_PARTITION"): 1,
        ("JoinGroup", "INVALID_GROUP_ID"): 1,
        ("ListOffsets", "UNKNOWN_TOPIC_OR_PARTITION"): 2,
    }


def test_the_metrics_page_has_all_metrics_and_no_other(broker: BrokerProcess, port: int) -> None:
    address = f"http://127.0.0.1:{port}/metrics"
    with urllib.request.urlopen(address, timeout=DEADLINE_S) as answer:
        assert answer.headers["content-type"].startswith("text/plain")
        page = answer.read().decode()
    shown = dict(re.findall(rf"^# TYPE {PREFIX}(\w+) (\w+)$", page, re.MULTILINE))
    assert shown == {name: family.kind for name, family in FAMILIES.items()}
    assert re.search(r"^process_resident_memory_bytes \d", page, re.MULTILINE)


def test_partitions_have_own_metrics_up_to_the_limit_and_sums_above(
    tmp_path: Path, port: int
) -> None:
    options = ("--metrics-port", str(port), "--metrics-partitions-max", "2")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.serve().make_topic("events", 2)
        with RawConnection(broker.bootstrap_servers) as connection:
            for partition in (0, 1):
                batch = batch_of(b"x")
                connection.produce("events", batch, acks=ACKS_ALL, partition=partition)
                assert connection.produced()[1] == 0
        assert 'logbroker_log_end_offset{partition="1",topic="events"}' in scrape(port)
        broker.make_topic("more")
        page = scrape(port)
    assert not [name for name in page if "partition=" in name]
    assert page['logbroker_topic_messages{topic="events"}'] == 2
    assert page['logbroker_topic_partitions{topic="events"}'] == 2
    assert page['logbroker_topic_partitions{topic="more"}'] == 1


def test_a_recreated_topic_is_counted_from_zero(broker: BrokerProcess, port: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(2):
        broker.make_topic("events")
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.produce("events", batch_of(b"x"), acks=ACKS_ALL)
            assert connection.produced()[1] == 0
        assert traffic(scrape(port), "events")["messages_in"] == 1
        admin.delete_topics(["events"])["events"].result(DEADLINE_S)
    assert not [name for name in scrape(port) if 'topic="events"' in name]


def test_segments_deleted_by_retention_are_counted(tmp_path: Path, port: int) -> None:
    batch = batch_of(b"x" * 900, timestamp_ms=time.time_ns() // 1_000_000)
    options = ("--metrics-port", str(port), "--retention-check-s", "0.05")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.serve()
        size = str(2 * len(batch))
        broker.make_topic("events", segment_bytes=size, retention_bytes=size)
        with RawConnection(broker.bootstrap_servers) as connection:
            for _ in range(6):
                connection.produce("events", batch, acks=ACKS_ALL)
                assert connection.produced()[1] == 0
        until(lambda: scrape(port)["logbroker_segments_deleted_total"] == 2, "two segments go")
        page = scrape(port)
    assert page["logbroker_segments_deleted_bytes_total"] == 4 * len(batch)
    assert page['logbroker_log_start_offset{partition="0",topic="events"}'] == 4
    assert page['logbroker_topic_messages{topic="events"}'] == 2


def test_the_result_of_recovery_is_exported_until_the_next_start(tmp_path: Path, port: int) -> None:
    with BrokerProcess(tmp_path / "log", "--metrics-port", str(port)) as broker:
        broker.serve().make_topic("events")
        assert scrape(port)["logbroker_recovered_logs"] == 0
        with RawConnection(broker.bootstrap_servers) as connection:
            connection.produce("events", batch_of(b"x"), acks=ACKS_ALL)
            assert connection.produced()[1] == 0
        broker.kill()
        segment = broker.data_dir / "events-0" / f"{0:020}.log"
        segment.write_bytes(segment.read_bytes() + b"torn")
        broker.serve()
        page = scrape(port)
        assert page["logbroker_recovered_logs"] == 1
        assert page["logbroker_recovery_dropped_bytes"] == len(b"torn")
        assert page["logbroker_recovery_seconds"] > 0
        broker.stop()
        broker.serve()
        page = scrape(port)
        assert page["logbroker_recovered_logs"] == page["logbroker_recovery_dropped_bytes"] == 0


def test_connections_over_the_limit_are_counted(tmp_path: Path, port: int) -> None:
    options = ("--metrics-port", str(port), "--connections-max", "1")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.serve()
        with RawConnection(broker.bootstrap_servers):
            until(lambda: scrape(port)["logbroker_connections"] == 1, "one is open")
            with RawConnection(broker.bootstrap_servers) as surplus:
                surplus.until_closed()
            assert scrape(port)["logbroker_connections_rejected_total"] == 1
        until(lambda: scrape(port)["logbroker_connections"] == 0, "it is closed")


def test_metrics_have_one_address(tmp_path: Path, port: int) -> None:
    options = ("--metrics-port", str(port), "--metrics-listen", f"127.0.0.1:{port}")
    with BrokerProcess(tmp_path / "log", *options) as broker:
        broker.launch()
        assert broker.wait() == MISUSED
        assert "mutually exclusive" in broker.output


def test_a_metrics_port_in_use_is_an_error(
    broker: BrokerProcess, tmp_path: Path, port: int
) -> None:
    with BrokerProcess(tmp_path / "other", "--metrics-port", str(port), name="other") as second:
        second.launch()
        assert second.wait() == 1
        assert f"metrics cannot listen on 127.0.0.1:{port}" in second.output
