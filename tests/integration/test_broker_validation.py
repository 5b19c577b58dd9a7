"""Batches with wrong records, and wrong bytes that no CRC covers, do not stop stock clients."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import kafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from kafka.protocol.producer.produce import ProduceRequest, ProduceResponse

from logbroker.records.validator import IS_COMPILED
from tests.support.kafka.broker_process import BrokerProcess
from tests.support.kafka.invalid_batches import INVALID_BATCHES
from tests.support.kafka.raw_connection import ACKS_ALL, RawConnection, batch_of, produce_request
from tests.support.processes.waiting import DEADLINE_S, until

INVALID_RECORD = 87
OK = 0
NOW = 0
"""Lets librdkafka set the time."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "log") as broker:
        yield broker.serve()


def put(raw: RawConnection, topic: str, value: bytes, partition: int = 0) -> None:
    raw.produce(topic, batch_of(value), acks=ACKS_ALL, partition=partition)
    assert raw.produced()[1] == OK


def values_by_librdkafka(broker: BrokerProcess, topic: str, partition: int = 0) -> list[bytes]:
    """Every value up to the end of the partition; any error fails."""
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "unused",
        "enable.partition.eof": True,
        "check.crcs": True,
        "log_level": 0,
    }
    found: list[bytes] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "no message, and not the end"
            error = message.error()
            if error is None:
                value = message.value()
                assert value is not None
                found.append(value)
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            return found


def values_by_kafka_python(broker: BrokerProcess, topic: str, partition: int = 0) -> list[bytes]:
    where = kafka.TopicPartition(topic, partition)
    with closing(kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers)) as consumer:
        consumer.assign([where])
        consumer.seek(where, 0)
        end = consumer.end_offsets([where])[where]
        found: list[bytes] = []
        while consumer.position(where) < end:
            for messages in consumer.poll(DEADLINE_S * 1000).values():
                found += [message.value for message in messages]
        return found


def test_invalid_batches_are_rejected_and_consumers_read_what_is_around_them(
    broker: BrokerProcess,
) -> None:
    broker.make_topic("around")
    codes = {}
    good = [b"first"]
    with RawConnection(broker.bootstrap_servers) as raw:
        put(raw, "around", b"first")
        for name, batch in INVALID_BATCHES.items():
            answer = raw.ask(
                produce_request("around", batch, acks=ACKS_ALL), ProduceResponse, version=9
            )
            ((partition,),) = [topic.partition_responses for topic in answer.responses]
            codes[name] = partition.error_code
            assert partition.error_message
            put(raw, "around", name.encode())
            good.append(name.encode())
    assert codes == dict.fromkeys(INVALID_BATCHES, INVALID_RECORD)
    assert values_by_librdkafka(broker, "around") == good
    assert values_by_kafka_python(broker, "around") == good


def test_other_partitions_of_the_request_are_stored(broker: BrokerProcess) -> None:
    broker.make_topic("others", 3)
    into = ProduceRequest.TopicProduceData.PartitionProduceData
    batches = [batch_of(b"one"), INVALID_BATCHES["offsets that skip one"], batch_of(b"three")]
    request = produce_request("others", batches[0], acks=ACKS_ALL)
    request.topic_data[0].partition_data = [
        into(index=index, records=batch) for index, batch in enumerate(batches)
    ]
    with RawConnection(broker.bootstrap_servers) as raw:
        answer = raw.ask(request, ProduceResponse, version=9)
    ((first, second, third),) = [topic.partition_responses for topic in answer.responses]
    assert [one.error_code for one in (first, second, third)] == [OK, INVALID_RECORD, OK]
    (wrong,) = second.record_errors
    assert (wrong.batch_index, wrong.batch_index_error_message) == (
        1,
        "its offset delta is 2; expected: 1",
    )
    assert [values_by_librdkafka(broker, "others", each) for each in range(3)] == [
        [b"one"],
        [],
        [b"three"],
    ]


def test_headers_that_claim_two_billion_records_make_no_segments(broker: BrokerProcess) -> None:
    broker.make_topic("claims")
    before = sorted(broker.data_dir.glob("claims-0/*"))
    with RawConnection(broker.bootstrap_servers) as raw:
        for _ in range(200):
            raw.produce("claims", INVALID_BATCHES["a count of two billion"], acks=ACKS_ALL)
        assert {raw.produced()[1] for _ in range(200)} == {INVALID_RECORD}
    assert sorted(broker.data_dir.glob("claims-0/*")) == before


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_producer_goes_on_after_a_record_that_is_too_late(
    broker: BrokerProcess, codec: str
) -> None:
    topic = f"late-{codec}"
    broker.make_topic(topic, message_timestamp_before_max_ms="3600000")
    outcomes: dict[bytes, int] = {}

    def delivered(error: KafkaError | None, message: Any) -> None:
        outcomes[message.value()] = error.code() if error else OK

    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "compression.codec": codec,
        "enable.idempotence": False,
        "log_level": 0,
    }
    producer = Producer(settings)
    for value, timestamp_ms in ((b"a" * 500, NOW), (b"old" * 500, 1), (b"b" * 500, NOW)):
        producer.produce(topic, value, timestamp=timestamp_ms, on_delivery=delivered)
        assert producer.flush(DEADLINE_S) == 0
    invalid = KafkaError.INVALID_TIMESTAMP
    assert list(outcomes.values()) == [OK, invalid, OK]
    assert values_by_librdkafka(broker, topic) == [b"a" * 500, b"b" * 500]


def test_a_broker_without_the_compiled_form_says_so(broker: BrokerProcess) -> None:
    until(
        lambda: ("record validation is not compiled" in broker.output) != IS_COMPILED,
        "it is logged after the start",
    )


FLIPPED_BYTES = {"base offset": 5, "length": 10, "leader epoch": 12, "leader epoch's end": 15}


def test_a_flipped_bit_that_no_crc_covers_ends_only_the_unflushed_log(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "log") as broker:
        broker.serve().make_topic("flipped", len(FLIPPED_BYTES) + 1)
        with RawConnection(broker.bootstrap_servers) as raw:
            for partition in range(len(FLIPPED_BYTES) + 1):
                for value in (b"one", b"two", b"three"):
                    put(raw, "flipped", value, partition)
        broker.kill()
        for partition, byte in enumerate(FLIPPED_BYTES.values()):
            path = tmp_path / f"log/flipped-{partition}/00000000000000000000.log"
            content = bytearray(path.read_bytes())
            content[2 * len(batch_of(b"one")) + byte] ^= 0x10
            path.write_bytes(content)
        # On a slow machine, checkpoints were written after the records.
        (tmp_path / "log/recovery-point-offset-checkpoint").write_text("0\n0\n")
        # Recoveries of earlier versions stored the epoch of such a batch.
        damaged = tmp_path / f"log/flipped-{len(FLIPPED_BYTES)}/leader-epoch-checkpoint"
        damaged.write_text("0\n2\n0 0\n1048576 2\n")
        for is_restarted in (False, True):
            broker.serve()
            expected = [b"one", b"two", *([b"four"] if is_restarted else [])]
            for partition in range(len(FLIPPED_BYTES)):
                assert values_by_librdkafka(broker, "flipped", partition) == expected
                assert values_by_kafka_python(broker, "flipped", partition) == expected
                if not is_restarted:
                    with RawConnection(broker.bootstrap_servers) as raw:
                        put(raw, "flipped", b"four", partition)
            last = values_by_librdkafka(broker, "flipped", len(FLIPPED_BYTES))
            assert last == [b"one", b"two", b"three"]
            broker.stop()
