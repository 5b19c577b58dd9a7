"""The blocking iterator that a consumer's user reads, and how far that user is."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from logbroker.client.audit_format.report import AuditRecord
from logbroker.consumer.fetching import Fetched, Fetcher, Message, PartitionEnd, StreamAssignment
from logbroker.consumer.received_reports import StreamCounter

_LEASE_CHECK_S: Final = 0.05
"""Time between two looks at a lease that does not hold; a round trip renews it."""


class MessageStream(Iterator[Message]):
    """Messages of one topic, in the order of each partition: it blocks, and ends by shutdown alone.

    For one thread. A message counts as processed when the next one is asked for, and not before,
    so that one whose processing fails comes again.
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
        # Guards what is below; notified when there is another share, and at the end.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._share: StreamAssignment | None = None
        self._ahead: deque[Fetched] = deque()
        self._handed: tuple[StreamAssignment, Message, int] | None = None
        self._is_over = False
        self._failure: Exception | None = None

    def __next__(self) -> Message:
        """Wait for the next message; the one before it counts as processed.

        Raises:
            FetchFailed: a partition cannot be read, or a message is damaged; the next call goes on.
            ClientClosed: the connector failed.
        """
        # By far the most often there is one at hand.
        with self._lock:
            self._process_handed()
            if self._share is not None and (message := self._hand_out(self._share)):
                return message
        try:
            with self._fetching:
                return self._fetch()
        finally:
            self._close_if_over()

    def begin(self, share: StreamAssignment) -> None:
        """Hand out the messages of a share from now on; the one before it was revoked."""
        with self._lock:
            self._share = share
            self._changed.notify_all()

    def revoke(self) -> dict[int, int]:
        """Hand out nothing more of the share; how far each partition was processed."""
        with self._lock:
            positions = self.positions()
            self._share = None
            self._ahead.clear()
            return positions

    def positions(self) -> dict[int, int]:
        """How far each partition of the share was processed; none for those not begun."""
        with self._lock:
            return {} if self._share is None else self._share.positions

    def count_handed(self, thread_id: int) -> None:
        """Take what a thread was handed last as processed."""
        with self._lock:
            if self._handed is not None and self._handed[2] == thread_id:
                self._process_handed()

    def take_reports(self) -> list[AuditRecord]:
        """Return audit reports of the messages returned since the previous call."""
        with self._lock:
            return [] if self._counter is None else self._counter.take_reports()

    def end(self, failure: Exception | None = None) -> None:
        """Hand out nothing any more: the iteration ends, with `failure` if there is one."""
        with self._lock:
            self._share = None
            self._ahead.clear()
            self._is_over = True
            self._failure = failure
            self._changed.notify_all()
        self._close_if_over()

    def _process_handed(self) -> None:
        if self._handed is not None:
            share, message, _ = self._handed
            share.processed(message.partition, message.offset + 1)
            self._handed = None

    def _fetch(self) -> Message:
        while True:
            share = self._wait_for_share()
            with self._lock:
                if share is self._share and (message := self._hand_out(share)):
                    return message
            fetched = self._fetcher.fetch(share)
            with self._lock:
                if share is self._share:
                    self._ahead.extend(fetched)

    def _wait_for_share(self) -> StreamAssignment:
        """The share to hand messages out of, once there is one whose lease holds."""
        with self._lock:
            while True:
                if self._is_over:
                    raise self._failure or StopIteration
                if self._share is None:
                    self._fetcher.rest()
                    self._changed.wait()
                elif self._share.lease.is_valid(self._clock()):
                    return self._share
                else:
                    self._changed.wait(_LEASE_CHECK_S)

    def _hand_out(self, share: StreamAssignment) -> Message | None:
        """The next message of what was read ahead, unless another may own it by now."""
        while self._ahead and share.lease.is_valid(self._clock()):
            item = self._ahead.popleft()
            if isinstance(item, Message):
                self._handed = (share, item, threading.get_ident())
                if self._counter is not None:
                    self._counter.count_message(item)
                return item
            if isinstance(item, PartitionEnd):
                share.processed(item.partition, item.offset)
            else:
                raise item
        return None

    def _close_if_over(self) -> None:
        # A thread that still fetches closes behind itself.
        if self._is_over and self._fetching.acquire(blocking=False):
            try:
                self._fetcher.close()
            finally:
                self._fetching.release()
