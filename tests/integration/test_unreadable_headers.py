"""A record with a header whose name is not UTF-8: no reader of a log may stop at it for ever."""

from pathlib import Path

from kafka import KafkaProducer

from app.log.topics import DELIVERY_LOG, EVENTS
from logbroker.audit.audit_log import AuditLog
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.mirrored_clusters import ClusterClient, MirrorProcess, Record, until_copied
from tests.support.processes.waiting import DEADLINE_S, until
from tests.support.schemas.registry_process import RegistryProcess
from tests.support.service.live_service import LiveScene, event

TIME_MS = 1_763_712_000_000
OPTIONS = ("--group-initial-rebalance-delay-ms", "0", "--group-min-session-timeout-ms", "1000")


class LatinName(str):
    """A header's name that a careless client did not write in UTF-8."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return super().encode("latin-1")


def write_unreadable(servers: str, topic: str, key: bytes | None = None) -> None:
    producer = KafkaProducer(bootstrap_servers=servers)
    headers = [(LatinName("gr\u00f6\u00dfe"), b"7")]
    producer.send(topic, b"{}", key, headers, 0, TIME_MS).get(DEADLINE_S)
    producer.close()


def test_a_mirror_says_where_it_is_and_copies_the_others(tmp_path: Path) -> None:
    with (
        BrokerProcess(tmp_path / "east", *OPTIONS, name="east") as one,
        BrokerProcess(tmp_path / "west", *OPTIONS, name="west") as other,
    ):
        east, west = (ClusterClient(each.serve().bootstrap_servers) for each in (one, other))
        east.make_topic("orders", 1)
        written = [Record(0, TIME_MS, None, value, (("a", b"1"),)) for value in (b"1", b"2")]
        east.write("orders", written[:1])
        write_unreadable(east.servers, "orders")
        east.write("orders", written[1:])
        with MirrorProcess(tmp_path / "m", east.servers, west.servers, "orders") as mirror:
            mirror.serve()
            until_copied(west, "orders", 2)
            assert [each.value for each in west.read("orders")[0]] == [b"1", b"2"]
            assert mirror.metric("skipped_total", topic="orders", reason="unreadable") == 1
            assert "topic=orders partition=0 offset=1" in mirror.output


def test_the_live_path_goes_past_it(
    tmp_path: Path, broker: BrokerProcess, receiver: ReceiverThread
) -> None:
    url = f"sqlite:///{tmp_path}/rewind.db"
    with LiveScene(tmp_path, broker.bootstrap_servers, url, partitions=1) as scene:
        scene.make()
        webhook = scene.webhook(receiver, "*")
        scene.live()
        write_unreadable(broker.bootstrap_servers, EVENTS)
        write_unreadable(broker.bootstrap_servers, DELIVERY_LOG, webhook.id.encode())
        scene.publish(event(1))
        until(lambda: "evt_1" in receiver.taken, "the event behind it arrives")


def test_a_registry_reads_on_behind_it(tmp_path: Path, broker: BrokerProcess) -> None:
    with RegistryProcess(tmp_path, broker.bootstrap_servers) as registry:
        registry.serve()
        write_unreadable(broker.bootstrap_servers, "_schemas")
        answer = registry.ask("POST", "/subjects/s/versions", {"schema": '"int"'})
        assert answer.json() == {"id": 1}


def test_the_audit_reads_on_behind_it(broker: BrokerProcess) -> None:
    servers = broker.bootstrap_servers
    client = ClusterClient(servers)
    client.make_topic("audit", 1)
    write_unreadable(servers, "audit")
    client.write("audit", [Record(0, TIME_MS, None, b"2", (("origin", b"west"),))])
    with AuditLog(servers, "audit", 0, {}) as log:
        assert [(each.value, each.origin) for each in log.entries()] == [
            (b"{}", ""),
            (b"2", "west"),
        ]
