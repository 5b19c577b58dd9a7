"""What is lost on the way to a mirror is found in both clusters, and named as the mirror's."""

import json
from pathlib import Path
from typing import Any

from logbroker.audit.audit_log import AuditLog
from logbroker.consumer import AuditedProducer
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.counting_consumer import CountingConsumer
from tests.support.kafka.logbroker_command import logbroker_command
from tests.support.kafka.lossy_proxy import LossyLink, Place
from tests.support.kafka.mirrored_clusters import ClusterClient, MirrorProcess, until_copied

TOPIC = "clicks"
COUNT = 1_000
LOST = 10
SESSION_MS = 6_000


def lost_on_the_way(place: Place) -> bool:
    return place.topic == TOPIC and place.offset % 100 == 37


def totals(servers: str) -> dict[str, Any]:
    """Published, received and missing of each tier."""
    done = logbroker_command(servers, "audit")("--json", "--lateness-s", "0")
    assert done.returncode == 1, done.stderr
    return {
        each["tier"]: (each["published"], each["received"], each["missing"])
        for each in json.loads(done.stdout)["totals"]
    }


def test_what_a_mirror_never_saw_is_missing_at_the_source_and_at_the_destination(
    tmp_path: Path,
) -> None:
    with BrokerProcess(tmp_path / "a", name="a") as a, BrokerProcess(tmp_path / "b", name="b") as b:
        source, destination = a.serve().bootstrap_servers, b.serve().bootstrap_servers
        a.make_topic(TOPIC)
        a.make_topic("audit", 1)
        with AuditedProducer(source, server="web-1") as producer:
            for number in range(COUNT):
                producer.send(TOPIC, [b"%d" % number], b"%d" % (number % 20))
        with AuditLog(source, "audit", 0, {}) as log:
            reported = log.records
        with (
            LossyLink(a.port, lost_on_the_way) as lossy,
            MirrorProcess(
                tmp_path / "mirror",
                lossy.address,
                destination,
                f"{TOPIC},audit",
                *("--origin", "a"),
                session_ms=SESSION_MS,
            ) as mirror,
        ):
            mirror.serve()
            copied = ClusterClient(destination)
            until_copied(copied, "audit", reported)
            until_copied(copied, TOPIC, COUNT - LOST)
            assert mirror.stop() == 0
        assert len(lossy.lost) == LOST
        counts = (COUNT, COUNT - LOST, LOST)
        assert totals(source) == {"mirror@a": counts}

        with CountingConsumer(destination, destination, TOPIC, "readers", "one") as consumer:
            consumer.take_all()
            consumer.read_to_end()
            consumer.report()
        assert totals(destination)["readers"] == counts
