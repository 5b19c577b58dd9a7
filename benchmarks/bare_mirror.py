"""The baseline of the mirror: a stock consumer whose messages go to a stock producer.

It reads no headers, commits no position, ignores rejected records, and so guarantees nothing. What
remains is the cost of a Python client that reads and writes a message.
"""

from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bare_loop import running_loop

CONSUMED_AT_ONCE: Final = 1_000
WAIT_S: Final = 0.02
QUEUED_MAX: Final = 1_000_000
RESPONSE_S: Final = 10.0


class Task(NamedTuple):
    """The topic to copy, and the topic at the destination to which it is copied."""

    source: str
    destination: str
    topic: str
    copy: str
    partitions: int


def bare_mirror(task: Task) -> AbstractContextManager[int]:
    """Run the loop in a separate process, from the end of the topic; yields its pid."""
    return running_loop(_serve, task)


def _serve(control: Connection, task: Task) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": task.source,
            "group.id": "bare-mirror",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 10,
            "log_level": 0,
        }
    )
    producer = Producer(
        {
            "bootstrap.servers": task.destination,
            "compression.type": "snappy",
            "enable.idempotence": True,
            "queue.buffering.max.messages": QUEUED_MAX,
            "log_level": 0,
        }
    )
    ends = [TopicPartition(task.topic, each) for each in range(task.partitions)]
    for end in ends:
        # Before the loop reports that it is ready.
        _, end.offset = consumer.get_watermark_offsets(end, RESPONSE_S)
    consumer.assign(ends)
    control.send(None)
    while True:
        first = consumer.poll(WAIT_S)
        messages: list[Any] = (
            [] if first is None else [first, *consumer.consume(CONSUMED_AT_ONCE, 0)]
        )
        for message in messages:
            producer.produce(
                task.copy,
                message.value(),
                message.key(),
                message.partition(),
                timestamp=message.timestamp()[1],
                headers=message.headers(),
            )
        producer.poll(0)
