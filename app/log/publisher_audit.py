"""Marks the events of a publisher, and reports to the audit which of them the log acknowledged."""

from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from app.log.topics import DELIVERY_LOG, EVENTS
from logbroker.client.audit_format.mark import AUDIT_HEADER, encode_marks
from logbroker.client.audit_reporter import UNSENDABLE, AuditReporter, Produce
from logbroker.client.stamper import PlacedSpan, Stamper

MARKED_TOPICS: Final = frozenset({EVENTS, DELIVERY_LOG})
"""Outcomes are not marked: the records that they refer to are."""

BYTES_MAX: Final = 8 * 2**20
"""Reports that are kept while `audit` rejects records: hours of them."""

_CHECK_S: Final = 0.5
"""Time between two checks for due windows, which are reported a minute after their end."""

Header = tuple[str, bytes]


class AuditOptions(NamedTuple):
    """How a publisher takes part in the audit: `on_dropped` gets the number of dropped reports."""

    stamper: Stamper
    on_dropped: Callable[[int], object] = lambda _: None


class PublisherAudit:
    """The marks and audit reports of one publisher; thread-safe.

    `produce` hands a record of `audit` to the Kafka client.
    """

    def __init__(self, options: AuditOptions, produce: Produce) -> None:
        self._stamper = options.stamper
        self.reporter = AuditReporter(
            produce, on_dropped=options.on_dropped, bytes_max=BYTES_MAX, drop_on=UNSENDABLE
        )
        self._next_s = 0.0

    def mark(self, topic: str, times_ms: Sequence[int]) -> "MessageMarks | None":
        """Return marks for messages; None if messages of the topic are not counted."""
        if topic not in MARKED_TOPICS:
            return None
        return MessageMarks(self._stamper, topic, times_ms)

    def report_due(self, now_s: float) -> None:
        """Report windows that are due, and retry failed reports; to be called often."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + _CHECK_S
        if due := self._stamper.due_reports(now_s):
            self.reporter.add(due)
        self.reporter.retry(now_s)

    def report_remaining(self) -> bool:
        """Report all windows; return whether answers are worth waiting for."""
        self.reporter.add(self._stamper.remaining_reports())
        return self.reporter.pending > 0 and not self.reporter.is_refused


class MessageMarks:
    """The marks of messages to one topic; a message with an invalid time has none."""

    def __init__(self, stamper: Stamper, topic: str, times_ms: Sequence[int]) -> None:
        self._stamper = stamper
        self._topic = topic
        self._spans: Sequence[PlacedSpan] = stamper.mark_messages(topic, times_ms)
        self._headers: list[Sequence[Header]] = [()] * len(times_ms)
        for place, span in self._spans:
            marks = encode_marks(span)
            self._headers[place : place + len(marks)] = [((AUDIT_HEADER, each),) for each in marks]

    def headers(self, index: int) -> Sequence[Header]:
        """Return the headers that mark the message at `index`."""
        return self._headers[index]

    def record_sent(self, failed: Collection[int]) -> None:
        """Record that the log has all messages except those at `failed`; to be called once."""
        self._stamper.record_sent(self._topic, self._spans, failed)
