"""The sums of all audit reports, computed as the docs describe it."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition

from logbroker.client.audit_format.report import PublishedReport, ReceivedReport, decode
from logbroker.client.audit_format.sequence_set import SequenceSet
from tests.support.processes.waiting import DEADLINE_S, POLL_S, until

Place = tuple[str, str, int]


class Counts(NamedTuple):
    """Counts over all topics, producers and windows, for one tier."""

    published: int
    missing: int
    duplicated: int
    uncovered: int


def compared(values: Iterable[bytes]) -> Counts:
    """Compare reports. All received reports count as one tier."""
    sent: defaultdict[Place, SequenceSet] = defaultdict(SequenceSet)
    got: defaultdict[Place, SequenceSet] = defaultdict(SequenceSet)
    total = 0
    # Reports with the same bytes are one report that was written twice.
    for event in map(decode, set(values)):
        if isinstance(event, PublishedReport):
            sent[event.topic, event.producer, event.window_ms].update(event.sequences)
        elif isinstance(event, ReceivedReport):
            for each in event.counts:
                got[each.topic, each.producer, each.window_ms].update(each.sequences)
                total += each.count
    places = sent.keys() | got.keys()
    return Counts(
        sum(len(sent[place]) for place in places),
        sum(sent[place].difference_count(got[place]) for place in places),
        total - sum(len(got[place]) for place in places),
        sum(got[place].difference_count(sent[place]) for place in places),
    )


def received(bootstrap_servers: str) -> set[tuple[str, str, int]]:
    """Return topic, producer and sequence of all messages that consumers reported."""
    found = set[tuple[str, str, int]]()
    for event in map(decode, audit_values(bootstrap_servers)):
        assert isinstance(event, ReceivedReport)
        for each in event.counts:
            found |= {(each.topic, each.producer, number) for number in each.sequences}
    return found


def audit_values(bootstrap_servers: str) -> list[bytes]:
    """Return all current values of the topic `audit`, or none if it does not exist."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "counting",
            "allow.auto.create.topics": False,
        }
    )
    try:
        partitions = consumer.list_topics(timeout=DEADLINE_S).topics
        numbers = list(partitions["audit"].partitions) if "audit" in partitions else []
        return [value for number in numbers for value in _partition_values(consumer, number)]
    finally:
        consumer.close()


def _partition_values(consumer: Consumer, number: int) -> list[bytes]:
    start, end = consumer.get_watermark_offsets(TopicPartition("audit", number), DEADLINE_S)
    found: list[bytes] = []
    consumer.assign([TopicPartition("audit", number, start)])

    def is_read() -> bool:
        for message in consumer.consume(end - start - len(found), POLL_S) if end > start else []:
            assert message.error() is None, message.error()
            value = message.value()
            assert value is not None
            found.append(value)
        return len(found) == end - start

    until(is_read, f"the topic audit is read up to {end}")
    return found
