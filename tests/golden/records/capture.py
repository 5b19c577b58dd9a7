"""Writes the record batches beside it, each made by foreign software from `records.json`.

    python tests/golden/records/capture.py

librdkafka's come from its producer, read back from the mock broker inside librdkafka; the other
two libraries' come from their batch builders. `versions.json` says which versions made them.
"""

import json
import socket
import struct
from importlib.metadata import version
from pathlib import Path
from typing import Any

import confluent_kafka
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder

HERE = Path(__file__).parent
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
PRODUCER = (4711, 3, 99)


def records() -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
    def octets(text: str | None) -> bytes | None:
        return None if text is None else text.encode()

    return [
        (
            fields["timestamp_ms"],
            octets(fields["key"]),
            octets(fields["value"]),
            [(key, octets(value)) for key, value in fields["headers"]],
        )
        for fields in json.loads((HERE / "records.json").read_text())
    ]


def built(builder_class: Any, codec: int) -> bytes:
    builder = builder_class(2, codec, 0, *PRODUCER, 1 << 20)
    for offset, (timestamp_ms, key, value, headers) in enumerate(records()):
        assert builder.append(offset, timestamp=timestamp_ms, key=key, value=value, headers=headers)
    return bytes(builder.build())


def produced_by_librdkafka(codec: str) -> bytes:
    producer = confluent_kafka.Producer(
        {"test.mock.num.brokers": 1, "compression.type": codec, "linger.ms": 1000}
    )
    for timestamp_ms, key, value, headers in records():
        producer.produce(
            "golden",
            partition=0,
            timestamp=timestamp_ms,
            key=key,
            value=value,
            headers=[*headers],
        )
    assert producer.flush(10) == 0
    (broker,) = producer.list_topics(timeout=10).brokers.values()
    return fetched(broker.host, broker.port)


def fetched(host: str, port: int) -> bytes:
    """What partition 0 of the topic `golden` holds, by one Fetch request of version 4."""
    topic = struct.pack(">ih6siiqi", 1, 6, b"golden", 1, 0, 0, 1 << 20)
    body = struct.pack(">iiiib", -1, 1000, 1, 1 << 20, 0) + topic
    request = struct.pack(">hhih", 1, 4, 0, -1) + body
    with socket.create_connection((host, port), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        frame = answer.read(size)
    # correlation id, throttle time, 1 topic, its name, 1 partition: number, error, two offsets
    start = struct.calcsize(">iiih6siihqq")
    (aborted,) = struct.unpack_from(">i", frame, start)
    assert aborted <= 0
    (length,) = struct.unpack_from(">i", frame, start + 4)
    assert start + 8 + length == len(frame)
    return frame[start + 8 :]


def main() -> None:
    for name, codec in CODECS.items():
        (HERE / f"kafka-python-{name}.batch").write_bytes(built(KafkaPythonBuilder, codec))
        (HERE / f"aiokafka-{name}.batch").write_bytes(built(AiokafkaBuilder, codec))
        (HERE / f"librdkafka-{name}.batch").write_bytes(produced_by_librdkafka(name))
    versions = {
        "kafka-python": version("kafka-python"),
        "aiokafka": version("aiokafka"),
        "librdkafka": confluent_kafka.libversion()[0],
    }
    (HERE / "versions.json").write_text(json.dumps(versions, indent=1) + "\n")


if __name__ == "__main__":
    main()
