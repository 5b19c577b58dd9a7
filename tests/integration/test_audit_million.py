"""One message of a million that a link loses is found, and named."""

import json

import pytest

from logbroker.client.audit_format.mark import find_mark_header, parse_mark
from logbroker.consumer import AuditedProducer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.counting_consumer import CountingConsumer
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.kafka.lossy_proxy import LossyLink, Place
from tests.support.kafka.paper_group import make_topic

pytestmark = pytest.mark.long

TOPIC = "clicks"
PARTITIONS = 4
SETS = 1_000
SET = [b"x"] * 1_000
COUNT = SETS * len(SET)
LOST = Place(TOPIC, 2, 123_456)


# Some 20 s of work, on a machine that may be busy with other tests.
def test_one_lost_message_of_a_million_is_found(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    make_topic(servers, TOPIC, PARTITIONS)
    make_topic(servers, "audit", 1)
    settings = {"compression.type": "snappy", "linger.ms": 20}
    with AuditedProducer(servers, server="web-1", client_settings=settings) as producer:
        for number in range(SETS):
            producer.send(TOPIC, SET, b"%d" % number)
    with (
        LossyLink(int(servers.rpartition(":")[2]), LOST.__eq__) as lossy,
        CountingConsumer(lossy.address, servers, TOPIC, "readers", "one") as consumer,
    ):
        consumer.take_all()
        consumer.read_to_end()
        consumer.report()
        assert consumer.received == COUNT - 1

    done = logbroker_command(servers, "audit")("--json", "--lateness-s", "0")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    (total,) = found["totals"]
    assert (total["published"], total["received"], total["missing"]) == (COUNT, COUNT - 1, 1)
    (row,) = [row for row in found["rows"] if row["status"] != "complete"]
    mark = parse_mark(find_mark_header(lossy.lost[LOST].headers))
    assert mark is not None
    assert (row["producer"], row["missingRanges"]) == (
        mark.producer,
        [[mark.sequence, mark.sequence + 1]],
    )
