"""Measures the bytes on disk that the log adds to each message, without and with its indexes.

The baseline is the overhead that the Kafka paper reports for its log.
"""

import time
from pathlib import Path
from typing import Final

from benchmarks.frames import ACKS_ALL, MESSAGE_BYTES, batch_of, encode_produce
from benchmarks.produce_load import Load, produce
from benchmarks.running_broker import RunningBroker, fresh_broker
from benchmarks.scale import Scale
from benchmarks.table import Baseline, Line

PAPER: Final = Baseline("the paper's log", 9.0)
"""Kafka: a Distributed Messaging System for Log Processing, section 5."""

LOAD_S: Final = 0.2
IN_FLIGHT: Final = 200
BATCHES: Final = (1, 50)


def measure(_: Scale, folder: Path) -> list[Line]:
    """Measure batches of 1 and 50 messages."""
    with fresh_broker(folder) as broker:
        return [line for records in BATCHES for line in _lines(broker, records)]


def _lines(broker: RunningBroker, records: int) -> list[Line]:
    topic = f"overhead-{records}"
    broker.create_topic(topic)
    batch = batch_of(records, time.time_ns() // 1_000_000)
    request = encode_produce(topic, batch, records, ACKS_ALL)
    sent = produce(broker.address, request, Load(1, IN_FLIGHT, LOAD_S))
    messages = sent.requests * records
    log_bytes = _size(broker, topic, ".log")
    index_bytes = _size(broker, topic, ".index") + _size(broker, topic, ".timeindex")
    overhead = log_bytes / messages - MESSAGE_BYTES
    return [
        Line(f"overhead per message, batch {records}", overhead, "bytes", PAPER),
        Line(
            f"the same with indexes, batch {records}",
            overhead + index_bytes / messages,
            "bytes",
            PAPER,
        ),
    ]


def _size(broker: RunningBroker, topic: str, suffix: str) -> int:
    return sum(path.stat().st_size for path in broker.segments(topic, suffix))
