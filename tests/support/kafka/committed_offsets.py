"""Offsets that a group without members commits."""

from collections.abc import Sequence
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support.processes.waiting import until

_NOT_READY = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR)


def commit_offsets(bootstrap_servers: str, group: str, offsets: Sequence[TopicPartition]) -> None:
    """Commit offsets without joining the group, as soon as its coordinator has loaded it."""
    client = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group})
    with closing(client) as consumer:
        until(lambda: _is_committed(consumer, offsets), "the offsets are committed")


def _is_committed(consumer: Consumer, offsets: Sequence[TopicPartition]) -> bool:
    try:
        consumer.commit(offsets=list(offsets), asynchronous=False)
    except KafkaException as error:
        # The client retries neither of them for a group that it has not joined.
        if error.args[0].code() in _NOT_READY:
            return False
        raise
    return True
