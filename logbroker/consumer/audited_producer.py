"""The paper's producer with an audit: it marks its messages and reports the acknowledged ones."""

import logging
import socket
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Final, Self

from logbroker.client.audit_format.mark import (
    AUDIT_HEADER,
    AUDIT_TOPIC,
    SERVER_HEADER,
    encode_marks,
)
from logbroker.client.audit_format.report import AuditRecord, PublishedReport, decode
from logbroker.client.audit_reporter import AuditProducer
from logbroker.client.errors import SendFailed
from logbroker.client.partitioner import partition_for_key
from logbroker.client.stamper import PlacedSpan, Stamper, check_time
from logbroker.consumer.producer import NewMessage, Partitioner, Producer, SentSet

_log: Final = logging.getLogger(__name__)

CHECK_S: Final = 1.0
"""Time between two checks for windows that are due."""

REPORT_TIMEOUT_S: Final = 10.0
"""How long one attempt to write a report may take; the next check retries it."""

_LISTED_MAX: Final = 10
"""Windows that the last log line lists if they could not be reported."""


class AuditedProducer:
    """A `Producer` whose messages are counted; thread-safe, a context manager.

    Each message gets the headers `server` and `audit` and a time, unless it has one. Acknowledged
    messages are reported to `audit_topic` by topic and window of `window_s`, once `lateness_s`
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
        """Prepare; `server` defaults to the name of this machine.

        Raises:
            ConfigurationError: a setting is invalid.
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
        self._reporter = AuditProducer(
            bootstrap_servers,
            audit_topic,
            timeout_s=REPORT_TIMEOUT_S,
            client_settings=client_settings,
        )
        self._is_closing = threading.Event()
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._report, name="audit-report", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def send(
        self, topic: str, messages: Sequence[bytes | NewMessage], key: bytes | None = None
    ) -> "Future[SentSet]":
        """Mark a set of messages and send it, as `Producer.send` does.

        Raises:
            ValueError: as there, or a message's time is before 1970 or after the year 9999.
            SendFailed: as there.
            ClientClosed: as there.
        """
        now_ms = round(time.time() * 1_000)
        # Inline, because calls for each message would cost as much as all the rest.
        times = [
            now_ms if isinstance(message, bytes) else message.timestamp_ms or now_ms
            for message in messages
        ]
        if times:
            check_time(min(times))
            check_time(max(times))
        spans = self._stamper.mark_messages(topic, times)
        marked = self._marked(messages, times, spans)
        try:
            sending = self._producer.send_each(topic, marked, len(times), key)
        except BaseException:
            # If the log has some of them all the same, the audit shows them as uncovered.
            self._stamper.record_sent(topic, spans, range(len(times)))
            raise
        sending.add_done_callback(partial(self._record_sent, topic, spans))
        return sending

    def flush(self, timeout_s: float | None = None) -> bool:
        """Wait until no message is in flight, as `Producer.flush`.

        Audit reports are sent when they are due, and by `close`.
        """
        return self._producer.flush(timeout_s)

    def close(self) -> None:
        """Wait for messages in flight, report what is not reported, and stop.

        Without a broker it takes at most `delivery_timeout_s` and half a minute; it logs what
        could not be reported, which the audit then shows as uncovered. Closing again does nothing.
        """
        with self._closing:
            if self._is_closing.is_set():
                return
            self._producer.close()
            self._is_closing.set()
        self._thread.join()
        if not self._reporter.report(self._stamper.remaining_reports):
            lost = [*self._reporter.unacknowledged, *self._stamper.remaining_reports()]
            _log.error("audit reports lost; uncovered messages: %s", _listed(lost))

    def _marked(
        self, messages: Sequence[bytes | NewMessage], times: list[int], spans: list[PlacedSpan]
    ) -> Iterator[NewMessage]:
        # One by one: a list of as many tuples makes the garbage collector run more often,
        # over everything in flight, which costs more than all the rest here.
        marks = (mark for _, span in spans for mark in encode_marks(span))
        server = self._server_header
        for message, mark, time_ms in zip(messages, marks, times, strict=True):
            if isinstance(message, bytes):
                yield NewMessage(message, (server, (AUDIT_HEADER, mark)), time_ms)
            else:
                headers = (*_other_headers(message), server, (AUDIT_HEADER, mark))
                yield NewMessage(message.value, headers, time_ms)

    def _record_sent(self, topic: str, spans: list[PlacedSpan], sending: "Future[SentSet]") -> None:
        failure = sending.exception()
        failed: Collection[int] = ()
        if failure is not None:
            assert isinstance(failure, SendFailed), failure
            failed = failure.failures
        self._stamper.record_sent(topic, spans, failed)

    def _report(self) -> None:
        while not self._is_closing.wait(CHECK_S):
            self._reporter.report(lambda: self._stamper.due_reports(time.monotonic()))


def _other_headers(message: NewMessage) -> list[tuple[str, bytes | None]]:
    """Return the headers without those of another audited producer."""
    return [each for each in message.headers if each[0] not in (AUDIT_HEADER, SERVER_HEADER)]


def _listed(records: list[AuditRecord]) -> str:
    """Return the windows of reports, up to a number that fits a log line."""
    reports = [
        each for record in records if isinstance(each := decode(record.value), PublishedReport)
    ]
    listed = [
        f"{len(each.sequences)} to {each.topic!r} in window {each.window_ms}"
        for each in reports[:_LISTED_MAX]
    ]
    return "; ".join(listed + ([f"{len(reports)} windows in all"] if reports[_LISTED_MAX:] else []))
