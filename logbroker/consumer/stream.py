"""The blocking iterator of a consumer's messages, which tracks the processed positions."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from logbroker.client.audit_format.report import AuditRecord
from logbroker.consumer.fetching import Fetched, Fetcher, Message, PartitionEnd, StreamAssignment
from logbroker.consumer.received_reports import StreamCounter

_LEASE_CHECK_S: Final = 0.05
"""Time between two checks of an expired lease, which a round trip renews."""


class MessageStream(Iterator[Message]):
    """Messages of one topic, in order per partition; blocks, and ends only at shutdown.

    For one thread. A message counts as processed when the next one is requested, so a message whose
    processing fails is read again.
    """

    def __init__(
        self,
        topic: str,
        fetcher: Fetcher,
        clock: Callable[[], float],
        counter: StreamCounter | None = None,
    ) -> None:
        """A connector makes it; `clock` is the one that leases are by.

        `counter` counts what is returned, if there is an audit.
        """
        self.topic = topic
        self._fetcher = fetcher
        self._clock = clock
        self._counter = counter
        # Held by the thread that may use the fetcher.
        self._fetching = threading.Lock()
        # Protects the attributes below; notified by a new assignment, and at the end.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._assignment: StreamAssignment | None = None
        self._prefetched: deque[Fetched] = deque()
        self._delivered: tuple[StreamAssignment, Message, int] | None = None
        self._has_ended = False
        self._failure: Exception | None = None

    def __next__(self) -> Message:
        """Wait for the next message, and mark the previous one as processed.

        Raises:
            FetchFailed: a partition cannot be read, or a message is corrupt; the next call
                continues.
            ClientClosed: the connector failed.
        """
        # The fast path: a message is prefetched.
        with self._lock:
            self._record_processed()
            if self._assignment is not None and (message := self._next_message(self._assignment)):
                return message
        try:
            with self._fetching:
                return self._fetch()
        finally:
            self._close_if_ended()

    def start(self, assignment: StreamAssignment) -> None:
        """Return the messages of an assignment from now on; the previous one was revoked."""
        with self._lock:
            self._assignment = assignment
            self._changed.notify_all()

    def revoke(self) -> dict[int, int]:
        """Stop returning messages of the assignment, and return its positions."""
        with self._lock:
            positions = self.positions()
            self._assignment = None
            self._prefetched.clear()
            return positions

    def positions(self) -> dict[int, int]:
        """Return the positions of the assignment, of partitions that were read."""
        with self._lock:
            return {} if self._assignment is None else self._assignment.positions

    def mark_processed(self, thread_id: int) -> None:
        """Mark the last message of a thread as processed."""
        with self._lock:
            if self._delivered is not None and self._delivered[2] == thread_id:
                self._record_processed()

    def take_reports(self) -> list[AuditRecord]:
        """Return audit reports of the messages returned since the previous call."""
        with self._lock:
            return [] if self._counter is None else self._counter.take_reports()

    def end(self, failure: Exception | None = None) -> None:
        """End the iteration, with `failure` if given."""
        with self._lock:
            self._assignment = None
            self._prefetched.clear()
            self._has_ended = True
            self._failure = failure
            self._changed.notify_all()
        self._close_if_ended()

    def _record_processed(self) -> None:
        if self._delivered is not None:
            assignment, message, _ = self._delivered
            assignment.record_processed(message.partition, message.offset + 1)
            self._delivered = None

    def _fetch(self) -> Message:
        while True:
            assignment = self._wait_for_assignment()
            with self._lock:
                if assignment is self._assignment and (message := self._next_message(assignment)):
                    return message
            fetched = self._fetcher.fetch(assignment)
            with self._lock:
                if assignment is self._assignment:
                    self._prefetched.extend(fetched)

    def _wait_for_assignment(self) -> StreamAssignment:
        """Wait for an assignment with a valid lease."""
        with self._lock:
            while True:
                if self._has_ended:
                    raise self._failure or StopIteration
                if self._assignment is None:
                    self._fetcher.pause()
                    self._changed.wait()
                elif self._assignment.lease.is_valid(self._clock()):
                    return self._assignment
                else:
                    self._changed.wait(_LEASE_CHECK_S)

    def _next_message(self, assignment: StreamAssignment) -> Message | None:
        """Return the next prefetched message, if the lease is valid."""
        while self._prefetched and assignment.lease.is_valid(self._clock()):
            item = self._prefetched.popleft()
            if isinstance(item, Message):
                self._delivered = (assignment, item, threading.get_ident())
                if self._counter is not None:
                    self._counter.count_message(item)
                return item
            if isinstance(item, PartitionEnd):
                assignment.record_processed(item.partition, item.offset)
            else:
                raise item
        return None

    def _close_if_ended(self) -> None:
        # A thread that is still fetching closes the fetcher itself.
        if self._has_ended and self._fetching.acquire(blocking=False):
            try:
                self._fetcher.close()
            finally:
                self._fetching.release()
