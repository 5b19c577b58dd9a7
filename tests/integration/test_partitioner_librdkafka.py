import random

from confluent_kafka import KafkaError, Message, Producer

from logbroker.client.partitioner import partition_for_key
from tests.support.processes.waiting import DEADLINE_S

PARTITIONS = 4
"""What librdkafka's own broker gives a topic that it creates."""


def test_librdkafka_chooses_the_same_partition_for_every_key() -> None:
    """The broker is the one built into librdkafka: nothing of ours but the function."""
    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "partitioner": "murmur2_random",
            "log_level": 4,
        }
    )
    placed: dict[bytes, int] = {}

    def note(error: KafkaError | None, message: Message) -> None:
        key, partition = message.key(), message.partition()
        assert error is None
        assert key is not None
        assert partition is not None
        placed[key] = partition

    source = random.Random(2011)
    keys = {b"wh_%d" % number for number in range(500)}
    keys |= {source.randbytes(length) for length in range(1, 200)}
    for key in keys:
        producer.produce("t", key=key, value=b"", on_delivery=note)
    assert producer.flush(DEADLINE_S) == 0
    assert placed == {key: partition_for_key(key, PARTITIONS) for key in keys}
    assert set(placed.values()) == set(range(PARTITIONS))
