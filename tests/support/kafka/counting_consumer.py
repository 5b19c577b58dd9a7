"""A stock consumer that counts messages for the audit, in this process or in another one.

As a process it reads a topic to its end, publishes its reports, prints `reported COUNT` on
standard error, and neither commits nor ends.
"""

import signal
import sys
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from logbroker.client.audit_format.mark import AUDIT_TOPIC, find_mark_header
from logbroker.client.received_counter import ReceivedCounter
from tests.support.processes.waiting import DEADLINE_S, until

MESSAGES_MAX = 10_000
POLL_S = 0.1


class CountingConsumer:
    """One member of a group. A context manager.

    `servers` is where it reads, which may be behind a lossy link; `audit_servers` where it reports.
    """

    def __init__(self, servers: str, audit_servers: str, topic: str, tier: str, name: str) -> None:
        self._topic = topic
        self._counter = ReceivedCounter(tier, name)
        self._auditing = Producer({"bootstrap.servers": audit_servers})
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": tier,
                # A static member replaces a killed one with the same name at once.
                "group.instance.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        self._ended: set[int] = set()
        self.received = 0
        """The number of messages so far, repeats included."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def join(self) -> None:
        """Subscribe with the group."""
        # A new assignment is read from the committed offsets.
        self._consumer.subscribe([self._topic], on_assign=lambda *_: self._ended.clear())

    def take_all(self) -> None:
        """Assign every partition from its start, without the group."""
        partitions = self._consumer.list_topics(self._topic, DEADLINE_S).topics[self._topic]
        self._consumer.assign([TopicPartition(self._topic, n, 0) for n in partitions.partitions])

    @property
    def assigned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    @property
    def is_at_end(self) -> bool:
        """Report whether partitions are assigned and all are read to the end."""
        return bool(self.assigned) and self._ended >= self.assigned

    def read_on(self) -> None:
        """Read the next messages, for at most a tenth of a second."""
        for message in self._consumer.consume(MESSAGES_MAX, POLL_S):
            self._count(message)

    def read_to_end(self) -> None:
        """Read all assigned partitions to the end."""
        self._ended.clear()

        def is_read() -> bool:
            self.read_on()
            return self.is_at_end

        until(is_read, f"{self._topic} is read to its end")

    def report(self) -> None:
        """Publish the counts since the last report, and wait for the acknowledgement."""
        for record in self._counter.take_reports():
            self._auditing.produce(AUDIT_TOPIC, record.value, record.key)
        assert self._auditing.flush(DEADLINE_S) == 0

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def _count(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.received += 1
            headers = message.headers()
            assert not isinstance(headers, dict)
            self._counter.count_message(self._topic, find_mark_header(headers))
            self._ended.discard(message.partition() or 0)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._ended.add(message.partition() or 0)
        else:
            raise AssertionError(error)


def main(servers: str, audit_servers: str, topic: str, tier: str, name: str) -> None:
    consumer = CountingConsumer(servers, audit_servers, topic, tier, name)
    consumer.join()
    consumer.read_to_end()
    consumer.report()
    print(f"reported {consumer.received}", file=sys.stderr, flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
