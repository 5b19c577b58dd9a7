"""The paper's producer with an audit: it stamps its messages and tells how many there were."""

import logging
import socket
import threading
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import Any, Final, Self

from logbroker.client.audit_event import AuditRecord, Published, decode
from logbroker.client.audit_mark import (
    AUDIT_HEADER,
    AUDIT_TOPIC,
    SERVER_HEADER,
    Mark,
    MarkSpan,
    encode_marks,
)
from logbroker.client.errors import SendFailed
from logbroker.client.partitioner import partition_for_key
from logbroker.client.stamper import SPAN_MAX, Stamper
from logbroker.consumer.audit_publisher import AuditPublisher
from logbroker.consumer.producer import NewMessage, Partitioner, Producer, SentSet

_log: Final = logging.getLogger(__name__)

ROUND_S: Final = 1.0
"""Time between two looks at which windows are to be published."""

EVENT_TIMEOUT_S: Final = 10.0
"""How long a monitoring event may take; one that fails is sent again in the next round."""

_TOLD_MAX: Final = 10
"""Windows that a closing producer names of those which it could not publish."""


class AuditedProducer:
    """A `Producer` whose messages are counted; safe on several threads, a context manager.

    Each message gets the headers `server` and `audit` and a time, unless it has one. What was
    acknowledged is published to `audit_topic` by topic and window of `window_s`, once `lateness_s`
    have passed, and the rest by `close`. Other arguments are those of `Producer`.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        server: str | None = None,
        window_s: float = 60.0,
        lateness_s: float = 60.0,
        audit_topic: str = AUDIT_TOPIC,
        partitioner: Partitioner = partition_for_key,
        delivery_timeout_s: float = 120.0,
        client_settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; `server` is this machine's name if none is given.

        Raises:
            ConfigurationError: a setting cannot be.
        """
        self._server = socket.gethostname() if server is None else server
        self._stamper = Stamper(
            self._server, window_ms=round(window_s * 1_000), lateness_ms=round(lateness_s * 1_000)
        )
        self._server_header = (SERVER_HEADER, self._server.encode())
        self._producer = Producer(
            bootstrap_servers,
            partitioner=partitioner,
            delivery_timeout_s=delivery_timeout_s,
            client_settings=client_settings,
        )
        # Of its own: what its user sets for many messages at once is not meant for these few.
        self._publisher = AuditPublisher(
            bootstrap_servers,
            audit_topic,
            timeout_s=EVENT_TIMEOUT_S,
            client_settings=client_settings,
        )
        self._is_closing = threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._publish, name="audit-publish", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def send(
        self, topic: str, messages: Sequence[bytes | NewMessage], key: bytes | None = None
    ) -> "Future[SentSet]":
        """Stamp a set and hand it over, as `Producer.send` does.

        Raises:
            ValueError: as there, or a message's time is before 1970 or after the year 9999.
            SendFailed: as there.
            ClientClosed: as there.
        """
        now_ms = round(time.time() * 1_000)
        # Written out, as calls for each message would cost as much as all the rest.
        times = [
            now_ms if isinstance(message, bytes) else message.timestamp_ms or now_ms
            for message in messages
        ]
        runs = list(self._by_window(times))
        spans = [self._stamper.stamp_span(topic, max(run), len(run)) for run in runs]
        stamped = self._stamped(messages, times, spans)
        try:
            sending = self._producer.send_each(topic, stamped, len(times), key)
        except BaseException:
            # Should some of it be in the log all the same, the audit shows it as uncovered.
            self._settle_each(topic, spans, range(len(times)))
            raise
        sending.add_done_callback(partial(self._settle, topic, spans))
        return sending

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until no message is under way any more; as `Producer.flush`.

        Monitoring events are published when they are due, and by `close`.
        """
        return self._producer.flush(timeout_s)

    def close(self) -> None:
        """Wait for what is under way, publish what is not published, and stop.

        Where no broker answers it takes `delivery_timeout_s` and half a minute at most; what could
        not be published is logged then, and the audit will show it as uncovered. Closing again
        changes nothing.
        """
        with self._closing:
            if self._is_closing.is_set():
                return
            self._producer.close()
            self._is_closing.set()
        self._thread.join()
        if not self._publisher.publish(self._stamper.rest):
            left = [*self._publisher.kept, *self._stamper.rest()]
            _log.error("not published, so the audit does not cover it: %s", _told(left))
        self._publisher.close()

    def _by_window(self, times: list[int]) -> Iterator[list[int]]:
        """Neighbours in the same window, so many at once as a span may have."""
        if len(set(times)) == 1:
            runs = [times]
        else:
            runs = [list(run) for _, run in groupby(times, self._stamper.window_start_ms)]
        for run in runs:
            for start in range(0, len(run), SPAN_MAX):
                yield run[start : start + SPAN_MAX]

    def _stamped(
        self, messages: Sequence[bytes | NewMessage], times: list[int], spans: list[MarkSpan]
    ) -> Iterator[NewMessage]:
        # One by one: a set's worth of tuples at once has the garbage collector look more often,
        # through all that is under way, which costs more than all the rest here.
        marks = (mark for span in spans for mark in encode_marks(span))
        server = self._server_header
        for message, mark, time_ms in zip(messages, marks, times, strict=True):
            if isinstance(message, bytes):
                yield NewMessage(message, (server, (AUDIT_HEADER, mark)), time_ms)
            else:
                headers = (*_others(message), server, (AUDIT_HEADER, mark))
                yield NewMessage(message.value, headers, time_ms)

    def _settle(self, topic: str, spans: list[MarkSpan], sending: "Future[SentSet]") -> None:
        failure = sending.exception()
        if failure is None:
            for span in spans:
                self._stamper.span_acknowledged(topic, span)
        else:
            assert isinstance(failure, SendFailed), failure
            self._settle_each(topic, spans, failure.failures)

    def _settle_each(self, topic: str, spans: list[MarkSpan], failed: Container[int]) -> None:
        """`failed` has the places in the set of the messages that were not acknowledged."""
        marks = (
            Mark(span.producer, span.window_ms, sequence)
            for span in spans
            for sequence in range(span.start, span.end)
        )
        for place, mark in enumerate(marks):
            if place in failed:
                self._stamper.failed(topic, mark)
            else:
                self._stamper.acknowledged(topic, mark)

    def _publish(self) -> None:
        while not self._is_closing.wait(ROUND_S):
            self._publisher.publish(lambda: self._stamper.due(time.monotonic()))


def _others(message: NewMessage) -> list[tuple[str, bytes | None]]:
    """The headers that were not put there by another audit."""
    return [each for each in message.headers if each[0] not in (AUDIT_HEADER, SERVER_HEADER)]


def _told(records: list[AuditRecord]) -> str:
    """What these events are about, as far as a line of a log should tell it."""
    events = [event for each in records if isinstance(event := decode(each.value), Published)]
    named = [
        f"{len(each.sequences)} messages to {each.topic!r} of the window {each.window_ms}"
        for each in events[:_TOLD_MAX]
    ]
    return "; ".join(named + ([f"{len(events)} windows in all"] if events[_TOLD_MAX:] else []))
