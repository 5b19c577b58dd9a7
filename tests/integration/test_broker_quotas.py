"""Client quotas and stock clients: what they notice, and who may change quotas."""

from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AclOperation, ResourceType

from tests.integration.test_broker_sasl import USER, SaslBroker
from tests.support.kafka.guarded_broker import CLUSTER, GuardedBroker, acl
from tests.support.kafka.quota_broker import AdminConnection
from tests.support.kafka.raw_connection import RawConnection
from tests.support.kafka.raw_quotas import alter_quotas, alteration, describe_quotas, described
from tests.support.processes.waiting import DEADLINE_S, until

CLUSTER_AUTHORIZATION_FAILED = 31
BYTE_RATE = 20_000
MESSAGES = 11
"""One more message of `BYTE_RATE` bytes than a window allows."""


def test_librdkafka_waits_for_the_quotas_of_its_user(tmp_path: Path) -> None:
    topic, throttled = "limited", list[float]()
    rates = {"producer_byte_rate": float(BYTE_RATE), "consumer_byte_rate": float(BYTE_RATE)}
    with (
        SaslBroker(tmp_path) as broker,
        AdminConnection(broker.bootstrap("PLAINTEXT")) as admin,
    ):
        broker.make_topic(topic)
        assert alter_quotas(admin, alteration({"user": USER}, rates)) == [(0, None)]
        settings: dict[str, Any] = {
            **broker.librdkafka("SCRAM-SHA-512"),
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
        producer = Producer({**settings, "batch.size": BYTE_RATE})
        for _ in range(MESSAGES):
            producer.produce(topic, bytes(BYTE_RATE))
        assert producer.flush(DEADLINE_S) == 0
        until(lambda: producer.poll(0.1) >= 0 and any(throttled), "the producer is throttled")
        throttled.clear()
        reading = {"group.id": topic, "auto.offset.reset": "earliest"}
        with closing(Consumer({**settings, **reading})) as consumer:
            consumer.subscribe([topic])
            for _ in range(MESSAGES):
                message = consumer.poll(DEADLINE_S)
                assert message is not None
                assert message.error() is None
        counts = broker.broker._meters.counts.requests
        assert min(counts[each] for each in counts if each in rates) > 0


def test_quotas_need_permissions_for_the_configuration_of_the_cluster(tmp_path: Path) -> None:
    change = alteration({"user": "alice"}, {"producer_byte_rate": 1000.0})
    with (
        GuardedBroker(tmp_path / "log").serve_guarded() as broker,
        RawConnection(broker.client_servers) as client,
    ):
        assert describe_quotas(client).error_code == CLUSTER_AUTHORIZATION_FAILED
        assert alter_quotas(client, change)[0][0] == CLUSTER_AUTHORIZATION_FAILED
        rights = (AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)
        broker.add(*(acl(ResourceType.BROKER, CLUSTER, each) for each in rights))
        assert alter_quotas(client, change) == [(0, None)]
        assert len(described(describe_quotas(client))) == 1
