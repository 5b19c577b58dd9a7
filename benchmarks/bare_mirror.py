"""The least that a mirror can be: a stock consumer whose messages go to a stock producer.

It looks at no header, remembers no position, takes no care of what is refused, and so promises
nothing; what is left is what a client in Python costs for a message read and written.
"""

from contextlib import AbstractContextManager
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.bare_loop import running_loop

CONSUMED_AT_ONCE: Final = 1_000
WAIT_S: Final = 0.02
QUEUED_MAX: Final = 1_000_000
ANSWER_S: Final = 10.0


class Task(NamedTuple):
    """What a loop is to copy: a topic into the one of another name at the destination."""

    source: str
    destination: str
    topic: str
    copy: str
    partitions: int


def bare_mirror(task: Task) -> AbstractContextManager[int]:
    """The loop in a process of its own, reading from the end: its pid. Gone at the end."""
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
    places = range(task.partitions)
    ends = [TopicPartition(task.topic, each) for each in places]
    for place in ends:
        # Looked up before anybody hears that the loop stands.
        _, place.offset = consumer.get_watermark_offsets(place, ANSWER_S)
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
