"""`logbroker audit` on a real broker, against a link that loses records and processes that die."""

import json
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from confluent_kafka import KafkaException

from logbroker.client.audit_format.mark import find_mark_header, parse_mark
from logbroker.consumer import AuditedProducer, NewMessage
from tests.support.kafka import counting_consumer
from tests.support.kafka.apache_kafka import TEST_TIMEOUT_S, KafkaServer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.counting_consumer import CountingConsumer
from tests.support.kafka.logbroker_command import Run, logbroker_command
from tests.support.kafka.lossy_proxy import LossyLink, Place
from tests.support.kafka.paper_group import make_topic
from tests.support.processes.server_process import ServerProcess
from tests.support.processes.waiting import until

TOPIC = "clicks"
PARTITIONS = 3
TIER = "readers"
MINUTE_MS = 60_000
T0 = (int(time.time() * 1_000) - 3_600_000) // MINUTE_MS * MINUTE_MS
"""Where a window begins that has long ended."""

# Windows count as soon as they end.
NOW = ("--lateness-s", "0")


@pytest.fixture
def servers(broker: BrokerProcess) -> str:
    make_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
    make_topic(broker.bootstrap_servers, "audit", 2)
    return broker.bootstrap_servers


@pytest.fixture
def audit(servers: str) -> Run:
    return logbroker_command(servers, "audit")


def link(servers: str, loses: Any) -> LossyLink:
    return LossyLink(int(servers.rpartition(":")[2]), loses)


def nothing(place: Place) -> bool:
    return False


def every_ninth(place: Place) -> bool:
    """One in nine or so, without an order that batches could follow."""
    return place.topic == TOPIC and crc32(repr(place).encode()) % 9 == 0


def publish(servers: str, count: int, *, server: str = "web-1", windows: int = 2) -> None:
    """Send so many messages, in sets of a few, with times in so many windows."""
    settings = {"compression.type": "snappy", "linger.ms": 5}
    with AuditedProducer(servers, server=server, client_settings=settings) as producer:
        for number in range(count):
            time_ms = T0 + number % windows * MINUTE_MS
            producer.send(TOPIC, [NewMessage(b"%d" % number, (), time_ms)], b"%d" % (number % 50))


def receive(servers: str, audit_servers: str, tier: str = TIER) -> int:
    """Read the whole topic and tell; how many messages came."""
    with CountingConsumer(servers, audit_servers, TOPIC, tier, "one") as consumer:
        consumer.take_all()
        consumer.read_to_end()
        consumer.report()
        return consumer.received


def report(audit: Run, *options: str, exit_code: int) -> dict[str, Any]:
    done = audit("--json", *NOW, *options)
    assert done.returncode == exit_code, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def the_total(found: dict[str, Any], tier: str = TIER) -> dict[str, Any]:
    (total,) = [each for each in found["totals"] if each["tier"] == tier]
    return dict(total)


def counted(**counts: int) -> dict[str, int]:
    names = ("published", "received", "missing", "duplicated", "uncovered")
    return {name: counts.get(name, 0) for name in names}


def counts_of(row: dict[str, Any]) -> dict[str, int]:
    return {name: row[name] for name in counted()}


def test_nothing_is_missing_behind_a_link_that_loses_nothing(servers: str, audit: Run) -> None:
    publish(servers, 3_000)
    with link(servers, nothing) as lossy:
        assert receive(lossy.address, servers) == 3_000
    found = report(audit, exit_code=0)
    assert counts_of(the_total(found)) == counted(published=3_000, received=3_000)
    assert found["status"] == "complete"
    assert {row["status"] for row in found["rows"]} == {"complete"}


def test_exactly_what_a_link_lost_is_missing(servers: str, audit: Run) -> None:
    publish(servers, 2_000, server="web-1")
    publish(servers, 1_000, server="web-2")
    with link(servers, every_ninth) as lossy:
        received = receive(lossy.address, servers)
    assert receive(servers, servers, "others") == 3_000
    assert 100 < len(lossy.lost) == 3_000 - received

    lost: defaultdict[tuple[int, str], set[int]] = defaultdict(set)
    for record in lossy.lost.values():
        mark = parse_mark(find_mark_header(record.headers))
        assert mark is not None
        lost[mark.window_ms, mark.producer].add(mark.sequence)
    found = report(audit, exit_code=1)
    rows = [row for row in found["rows"] if row["tier"] == TIER]
    assert {(row["producer"].partition("/")[0], row["windowStart"][11:16]) for row in rows} == {
        (server, time.strftime("%H:%M", time.gmtime(start_ms / 1_000)))
        for server in ("web-1", "web-2")
        for start_ms in (T0, T0 + MINUTE_MS)
    }
    assert [row["missing"] for row in rows] == [len(lost[key]) for key in sorted(lost)]
    for row, key in zip(rows, sorted(lost), strict=True):
        named = [n for start, end in row["missingRanges"] for n in range(start, end)]
        assert named == sorted(lost[key])[: len(named)]
        assert len(row["missingRanges"]) == 10
    assert counts_of(the_total(found)) == counted(
        published=3_000, received=received, missing=len(lossy.lost)
    )
    # The others received all of it.
    assert counts_of(the_total(found, "others")) == counted(published=3_000, received=3_000)


def test_two_consumers_that_share_a_topic_are_one_tier(servers: str, audit: Run) -> None:
    publish(servers, 2_000)
    with (
        link(servers, every_ninth) as lossy,
        CountingConsumer(lossy.address, servers, TOPIC, TIER, "one") as one,
        CountingConsumer(lossy.address, servers, TOPIC, TIER, "two") as two,
    ):
        one.join()
        two.join()

        def all_is_read() -> bool:
            one.read_on()
            two.read_on()
            is_shared = one.assigned | two.assigned == set(range(PARTITIONS))
            return is_shared and one.is_at_end and two.is_at_end

        until(all_is_read, "two consumers share the topic and have read it")
        one.report()
        two.report()
    total = the_total(report(audit, exit_code=1))
    # The first consumer may have read messages that the second one then read again.
    repeats = one.received + two.received + len(lossy.lost) - 2_000
    assert counts_of(total) == counted(
        published=2_000,
        received=2_000 - len(lossy.lost),
        missing=len(lossy.lost),
        duplicated=repeats,
    )


DYING_PRODUCER = """
import signal, sys
from logbroker.consumer import AuditedProducer, NewMessage
producer = AuditedProducer(sys.argv[1], server="web-9")
sets = [[NewMessage(b"%d" % n, (), int(sys.argv[3]))] for n in range(500)]
for sending in [producer.send(sys.argv[2], each) for each in sets]:
    sending.result()
print("sent", file=sys.stderr, flush=True)
signal.pause()
"""


def test_unreported_messages_of_a_killed_producer_are_uncovered(
    servers: str, audit: Run, tmp_path: Path
) -> None:
    publish(servers, 400)
    arguments = ["-c", DYING_PRODUCER, servers, TOPIC, str(T0)]
    with ServerProcess(arguments, tmp_path / "producer.log") as producer:
        producer.start("sent")
        producer.kill()
    assert receive(servers, servers) == 900
    found = report(audit, exit_code=0)
    assert counts_of(the_total(found)) == counted(published=400, received=900, uncovered=500)
    (row,) = [row for row in found["rows"] if row["uncovered"]]
    assert row["producer"].startswith("web-9/")
    assert (row["status"], row["windowEnd"]) == ("uncovered", None)
    assert found["status"] == "uncovered"


def dying_consumer(servers: str, audit_servers: str, folder: Path) -> ServerProcess:
    arguments = ["-m", counting_consumer.__name__, servers, audit_servers, TOPIC, TIER, "dying"]
    return ServerProcess(arguments, folder / "consumer.log")


def read_again(servers: str, audit_servers: str) -> int:
    """Resume for the killed consumer, report and commit; return the number of messages read."""
    with CountingConsumer(servers, audit_servers, TOPIC, TIER, "dying") as consumer:
        consumer.join()
        consumer.read_to_end()
        consumer.report()
        consumer.commit()
        return consumer.received


def test_a_consumer_killed_before_its_commit_makes_repeats(
    servers: str, audit: Run, tmp_path: Path
) -> None:
    publish(servers, 1_000)
    with dying_consumer(servers, servers, tmp_path) as consumer:
        assert consumer.start("reported ") == "1000"
        consumer.kill()
    assert read_again(servers, servers) == 1_000
    found = report(audit, exit_code=0)
    assert counts_of(the_total(found)) == counted(published=1_000, received=1_000, duplicated=1_000)


def test_repeats_do_not_hide_a_loss(servers: str, audit: Run, tmp_path: Path) -> None:
    publish(servers, 1_000)

    def one_place(place: Place) -> bool:
        return place == (TOPIC, 1, 77)

    with link(servers, one_place) as lossy:
        with dying_consumer(lossy.address, servers, tmp_path) as consumer:
            assert consumer.start("reported ") == "999"
            consumer.kill()
        assert read_again(lossy.address, servers) == 999
    # Far more arrived than were published, and still one did not.
    found = report(audit, exit_code=1)
    assert counts_of(the_total(found)) == counted(
        published=1_000, received=999, missing=1, duplicated=999
    )
    (record,) = lossy.lost.values()
    mark = parse_mark(find_mark_header(record.headers))
    assert mark is not None
    (row,) = [row for row in found["rows"] if row["missing"]]
    assert (row["producer"], row["missingRanges"]) == (
        mark.producer,
        [[mark.sequence, mark.sequence + 1]],
    )


@pytest.mark.xdist_group("apache_kafka")
@pytest.mark.timeout(TEST_TIMEOUT_S)
def test_the_same_is_found_on_apache_kafka(apache_kafka: KafkaServer) -> None:
    servers = apache_kafka.bootstrap_servers
    make_topic(servers, TOPIC, PARTITIONS)
    # Another test of this Kafka's may have made it.
    with suppress(KafkaException):
        make_topic(servers, "audit", 2)
    publish(servers, 1_000)
    with link(servers, every_ninth) as lossy:
        received = receive(lossy.address, servers)
    assert 50 < len(lossy.lost) == 1_000 - received
    found = report(logbroker_command(servers, "audit"), exit_code=1)
    assert counts_of(the_total(found)) == counted(
        published=1_000, received=received, missing=len(lossy.lost)
    )
