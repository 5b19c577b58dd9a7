"""Marks the events that a publisher sends, and tells the audit how many there were."""

from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from itertools import groupby
from typing import Final, NamedTuple

from app.log.audit_outbox import AuditOutbox, Produce
from app.log.topics import DELIVERY_LOG, EVENTS
from logbroker.client.audit_event import AuditRecord
from logbroker.client.audit_mark import AUDIT_HEADER, TIME_MS_MAX, Mark, MarkSpan, encode_marks
from logbroker.client.stamper import SPAN_MAX, Stamper

MARKED: Final = frozenset({EVENTS, DELIVERY_LOG})
"""Outcomes are not marked: what they tell of are records that are."""

_LOOK_S: Final = 0.5
"""How often windows are looked at; they stay open a minute longer than they last."""

Header = tuple[str, bytes]


class PlacedSpan(NamedTuple):
    """Marks of messages that follow each other, the first of them at `place` among all."""

    place: int
    span: MarkSpan


class AuditTrail:
    """The marks of one publisher, and its way into `audit`. Safe on any thread.

    `produce` hands a record of `audit` to the client.
    """

    def __init__(self, stamper: Stamper, produce: Produce, lost: Callable[[int], object]) -> None:
        self._stamper = stamper
        self._outbox = AuditOutbox(produce, lost)
        self._next_s = 0.0

    @property
    def waiting(self) -> int:
        """Records for `audit` that the log does not have yet."""
        return self._outbox.waiting

    @property
    def under_way(self) -> int:
        """Records for `audit` that the client has."""
        return self._outbox.under_way

    def mark(self, topic: str, times_ms: Sequence[int]) -> "Marks | None":
        """The marks of messages to be sent; None where messages are not counted."""
        if topic not in MARKED:
            return None
        spans = list(self._spans(topic, times_ms))
        return Marks(self._stamper, topic, spans, len(times_ms))

    def _spans(self, topic: str, times_ms: Sequence[int]) -> Iterator[PlacedSpan]:
        """Marks for each stretch of messages of one window, as many as there are."""
        start = 0
        for window_ms, stretch in groupby(times_ms, self._window_ms):
            times = list(stretch)
            if window_ms is not None:
                for place in range(0, len(times), SPAN_MAX):
                    some = times[place : place + SPAN_MAX]
                    span = self._stamper.stamp_span(topic, max(some), len(some))
                    yield PlacedSpan(start + place, span)
            start += len(times)

    def _window_ms(self, time_ms: int) -> int | None:
        """Where the window of a time begins; None of one that no window has."""
        if 0 <= time_ms <= TIME_MS_MAX:
            return self._stamper.window_start_ms(time_ms)
        return None

    def tell(self, records: Sequence[AuditRecord]) -> Future[None]:
        """Send receipts; done once the log has them, or is known to take none now."""
        return self._outbox.add(records)

    def work(self, now_s: float) -> None:
        """Tell of windows that are over, and try again what was not taken; to be called often."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + _LOOK_S
        if due := self._stamper.due(now_s):
            self._outbox.add(due)
        self._outbox.retry(now_s)

    def end(self) -> bool:
        """Tell of all windows; whether there is an answer to wait for."""
        self._outbox.add(self._stamper.rest())
        return self.waiting > 0 and not self._outbox.is_refused


class Marks:
    """The marks of some messages to one topic; one whose time no window has is without."""

    def __init__(
        self, stamper: Stamper, topic: str, spans: Sequence[PlacedSpan], count: int
    ) -> None:
        self._stamper = stamper
        self._topic = topic
        self._spans = spans
        self._headers: list[Sequence[Header]] = [()] * count
        for place, span in spans:
            marks = encode_marks(span)
            self._headers[place : place + len(marks)] = [((AUDIT_HEADER, each),) for each in marks]

    def headers(self, index: int) -> Sequence[Header]:
        """What the message at `index` carries for it."""
        return self._headers[index]

    def settle(self, failed: Collection[int]) -> None:
        """The log has all of them but those at `failed`; to be called once."""
        for place, span in self._spans:
            if failed:
                self._settle_each(place, span, failed)
            else:
                self._stamper.span_acknowledged(self._topic, span)

    def _settle_each(self, place: int, span: MarkSpan, failed: Collection[int]) -> None:
        for sequence in range(span.start, span.end):
            mark = Mark(span.producer, span.window_ms, sequence)
            if place + sequence - span.start in failed:
                self._stamper.failed(self._topic, mark)
            else:
                self._stamper.acknowledged(self._topic, mark)
