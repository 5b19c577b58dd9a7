"""A full disk, simulated by a file size limit that fails every write."""

import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.http.scraped_metrics import scrape
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.raw_connection import (
    ACKS_ALL,
    ACKS_LEADER,
    ACKS_NONE,
    RawConnection,
    batch_of,
    produce_request,
)
from tests.support.processes.ports import free_port
from tests.support.processes.waiting import until

FILE_BYTES_MAX = 256 * 1024
STORAGE_ERROR = 56
LIMITED = (
    "import os, resource, sys;"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2);"
    "os.execv(sys.argv[2], sys.argv[2:])"
)
FULL = (
    "import os, resource, subprocess, sys;"
    # The file that the output goes to is not limited.
    "copy = subprocess.Popen(['cat'], stdin=subprocess.PIPE, stdout=2);"
    "os.dup2(copy.stdin.fileno(), 2);"
    "resource.setrlimit(resource.RLIMIT_FSIZE, (16, resource.RLIM_INFINITY));"
    "os.execv(sys.argv[1], sys.argv[1:])"
)
"""Runs a command that can extend no file above 16 bytes."""
VALUE = bytes(range(256)) * 40
IN = ("messages", "bytes")


@pytest.fixture
def metrics_port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, metrics_port: int) -> Iterator[BrokerProcess]:
    with BrokerProcess(
        tmp_path / "log",
        *("--metrics-listen", f"127.0.0.1:{metrics_port}"),
        wrapper=(sys.executable, "-c", LIMITED, str(FILE_BYTES_MAX)),
    ) as broker:
        broker.serve().make_topic("full")
        yield broker


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[RawConnection]:
    with RawConnection(broker.bootstrap_servers) as connection:
        yield connection


def fill_up(connection: RawConnection, acks: int = ACKS_ALL) -> int:
    """Produce until the disk refuses: how many batches were acknowledged."""
    for number in range(100):
        connection.produce("full", batch_of(VALUE), acks=acks)
        _, error_code, base_offset = connection.produced()
        if error_code:
            assert error_code == STORAGE_ERROR
            return number
        assert base_offset == number
    raise AssertionError("the disk took everything")


def read_all(connection: RawConnection, topic: str) -> list[bytes | None]:
    connection.fetch(topic, 0)
    return [record.value for record in connection.fetched().records]


@pytest.mark.parametrize("acks", [ACKS_ALL, ACKS_LEADER], ids=["all", "one"])
def test_a_full_disk_is_a_storage_error_and_reads_continue(
    broker: BrokerProcess, connection: RawConnection, metrics_port: int, acks: int
) -> None:
    count = fill_up(connection, acks)
    assert count == FILE_BYTES_MAX // len(batch_of(VALUE))
    connection.fetch("full", count - 1, max_wait_ms=30_000)
    assert connection.fetched().high_watermark == count
    assert read_all(connection, "full") == [VALUE] * count
    page = scrape(metrics_port)
    assert page["logbroker_write_failures_total"] == 1
    assert page["logbroker_partitions_write_failed"] == 1
    refused = 'logbroker_request_errors_total{api="Produce",error="KAFKA_STORAGE_ERROR"}'
    assert page[refused] == 1
    traffic = {name: page[f'logbroker_{name}_in_total{{topic="full"}}'] for name in IN}
    assert traffic == {"messages": count, "bytes": count * len(batch_of(VALUE))}
    assert "write failed partition=full-0" in broker.output
    assert "File too large" in broker.output

    # What is smaller than the room left is taken, and gets the next offset.
    connection.produce("full", batch_of(b"small"), acks=ACKS_ALL)
    assert connection.produced()[1:] == (0, count)
    assert scrape(metrics_port)["logbroker_partitions_write_failed"] == 0
    # So is everything of another topic, whose file is not full.
    broker.make_topic("other")
    connection.produce("other", batch_of(VALUE), acks=ACKS_ALL)
    assert connection.produced()[1:] == (0, 0)
    assert "Traceback" not in broker.output


def test_all_requests_of_a_failed_write_get_the_error(connection: RawConnection) -> None:
    count = fill_up(connection)
    frames = [
        connection.encode(request, 9)
        for request in [produce_request("full", batch_of(VALUE), acks=ACKS_ALL)] * 5
    ]
    connection.socket.sendall(b"".join(frames))
    assert [connection.produced()[1:] for _ in frames] == [(STORAGE_ERROR, -1)] * 5
    assert read_all(connection, "full") == [VALUE] * count


def test_a_failed_write_with_acks_0_closes_the_connection(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    fill_up(connection)
    with RawConnection(broker.bootstrap_servers) as sender:
        sender.produce("full", batch_of(VALUE), acks=ACKS_NONE)
        sender.until_closed()


def test_an_idempotent_producer_may_retry_after_a_full_disk(
    connection: RawConnection,
) -> None:
    count = fill_up(connection)

    def sequenced(value: bytes) -> tuple[int, int]:
        batch = batch_of(value, producer_id=1, producer_epoch=0, base_sequence=0)
        connection.produce("full", batch, acks=ACKS_ALL)
        return connection.produced()[1:]

    assert sequenced(VALUE) == (STORAGE_ERROR, -1)
    # It was undone, so it is no duplicate when it comes again.
    assert sequenced(b"small") == (0, count)


def test_appends_continue_when_the_disk_has_space_again(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    count = fill_up(connection)
    broker.kill()
    with (
        BrokerProcess(broker.data_dir, name="again").serve() as roomy,
        RawConnection(roomy.bootstrap_servers) as again,
    ):
        assert read_all(again, "full") == [VALUE] * count
        again.produce("full", batch_of(VALUE), acks=ACKS_ALL)
        assert again.produced()[1:] == (0, count)


def test_a_broker_on_a_full_disk_stops_cleanly(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    fill_up(connection)
    assert broker.stop() == 0
    assert (broker.data_dir / ".kafka_cleanshutdown").exists()


def test_a_broker_starts_on_a_full_disk_and_serves_reads(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    count = fill_up(connection)
    assert broker.stop() == 0
    with (
        BrokerProcess(
            broker.data_dir, name="full", wrapper=(sys.executable, "-c", FULL)
        ).serve() as full,
        RawConnection(full.bootstrap_servers) as again,
    ):
        assert read_all(again, "full") == [VALUE] * count
        again.produce("full", batch_of(VALUE), acks=ACKS_ALL)
        assert again.produced()[1:] == (STORAGE_ERROR, -1)


def test_a_log_whose_recovery_needs_space_is_served_once_there_is_some(
    broker: BrokerProcess, connection: RawConnection
) -> None:
    count = fill_up(connection)
    broker.kill()
    with (
        BrokerProcess(
            broker.data_dir,
            *("--log-retry-s", "0.1"),
            name="full",
            wrapper=(sys.executable, "-c", FULL),
        ).serve() as full,
        RawConnection(full.bootstrap_servers) as again,
    ):
        again.produce("full", batch_of(VALUE), acks=ACKS_ALL)
        assert again.produced()[1:] == (STORAGE_ERROR, -1)
        # Now there is space.
        resource.prlimit(full.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        until(lambda: "opened partition=full-0" in full.output, "the log is opened")
        assert read_all(again, "full") == [VALUE] * count
        again.produce("full", batch_of(VALUE), acks=ACKS_ALL)
        assert again.produced()[1:] == (0, count)
