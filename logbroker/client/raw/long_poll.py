"""Waits for new records of many partitions, with one delayed fetch at each leader."""

import selectors
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from logbroker.client.errors import BrokersUnavailable
from logbroker.client.raw.cluster import RawCluster
from logbroker.client.raw.connection import BrokerConnection
from logbroker.client.raw.parsing.errors import AttemptFailed
from logbroker.client.raw.parsing.metadata import BrokerAddress, TopicPartition
from logbroker.wire.error_codes import NONE
from logbroker.wire.fetch import FIRST_WITH_TOPIC_ID
from logbroker.wire.fetch_client import READ_COMMITTED, FetchParameters

WAIT_MS: Final = 10_000
"""How long a broker holds a fetch without new records; it answers the first one at once."""

_BYTES_MAX: Final = 1
"""A broker returns a whole batch all the same, from one partition."""

_Fetch = tuple[FetchParameters, ...]


class LongPoll:
    """Finds partitions of one topic that have committed records at their positions, or above them.

    Only `wake` may be called on other threads. The caller closes it.
    """

    def __init__(self, cluster: RawCluster, positions: Mapping[TopicPartition, int]) -> None:
        """Send the fetches over connections of `cluster`, which `close` closes.

        Raises:
            BrokersUnavailable: a partition has no leader, or a broker does not answer.
            UnknownTopic: the topic or a partition does not exist.
            NotAuthorized: the user may not read the topic, or is rejected.
        """
        self._cluster = cluster
        self._timeout_s = WAIT_MS / 1_000 + cluster.connections.wait_s
        self._fetches: dict[BrokerConnection, _Fetch] = {}
        self._versions: dict[BrokerConnection, int] = {}
        self._due_s: dict[BrokerConnection, float] = {}
        """When the response of each connection is overdue."""
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_sender.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)
        try:
            for address, fetch in self._by_leader(positions).items():
                connection = cluster.connections.acquire(address)
                self._selector.register(connection, selectors.EVENT_READ)
                self._fetches[connection] = fetch
                self._send(connection)
        except AttemptFailed as failure:
            self.close()
            raise BrokersUnavailable(str(failure)) from failure
        except BaseException:
            self.close()
            raise

    def wake(self) -> None:
        """End the wait of `find_news`, or the next one."""
        with suppress(OSError):  # the buffer is full, or it is closed
            self._wake_sender.send(b"\0")

    def close(self) -> None:
        """Close all connections; the brokers drop the fetches."""
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()
        self._cluster.close()

    def find_news(self, timeout_s: float) -> set[TopicPartition]:
        """Wait up to `timeout_s` or until `wake`; the partitions with records, or with an error.

        Some may be missing if there are any; then the poll is only to be closed.
        """
        ready = {key.fileobj for key, _ in self._selector.select(timeout_s)}
        now_s = time.monotonic()
        news = set[TopicPartition]()
        for connection in tuple(self._fetches):
            try:
                if connection in ready:
                    news |= self._receive(connection)
                elif self._due_s[connection] < now_s:
                    news |= self._watched(connection)
            except AttemptFailed:
                news |= self._watched(connection)
        return news

    def _by_leader(self, positions: Mapping[TopicPartition, int]) -> dict[BrokerAddress, _Fetch]:
        by_leader: dict[BrokerAddress, list[FetchParameters]] = {}
        for tp, offset in positions.items():
            plan, leader = self._cluster.leader(tp)
            parameters = FetchParameters(
                topic=tp.topic,
                topic_id=plan.topic_id,
                partition=tp.partition,
                leader_epoch=leader.epoch,
                offset=offset,
                bytes_max=_BYTES_MAX,
                max_wait_ms=WAIT_MS,
                isolation_level=READ_COMMITTED,
            )
            by_leader.setdefault(leader.address, []).append(parameters)
        return {address: tuple(fetch) for address, fetch in by_leader.items()}

    def _send(self, connection: BrokerConnection) -> None:
        # Older versions name the topic, and broker and client need not agree on its id.
        self._versions[connection] = connection.send_fetch(
            *self._fetches[connection], highest=FIRST_WITH_TOPIC_ID - 1
        )
        self._due_s[connection] = time.monotonic() + self._timeout_s

    def _receive(self, connection: BrokerConnection) -> set[TopicPartition]:
        """Return the news of a response; without any, send the next fetch."""
        answer = connection.receive_fetch(self._versions[connection])
        if answer.error_code != NONE:
            return self._watched(connection)
        numbers = {
            each.partition for each in answer.partitions if each.error_code != NONE or each.records
        }
        if not numbers:
            self._send(connection)
        return {tp for tp in self._watched(connection) if tp.partition in numbers}

    def _watched(self, connection: BrokerConnection) -> set[TopicPartition]:
        return {TopicPartition(each.topic, each.partition) for each in self._fetches[connection]}
