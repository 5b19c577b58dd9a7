"""Marks the messages of a producer, and counts the acknowledged ones by window of event time."""

import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

from logbroker.client.audit_format.mark import SEQUENCE_MAX, TIME_MS_MAX, MarkSpan
from logbroker.client.audit_format.report import (
    WINDOW_MS_MAX,
    AuditRecord,
    PublishedReport,
    encode_published,
)
from logbroker.client.audit_format.sequence_set import SequenceSet
from logbroker.errors import ConfigurationError

WINDOWS_MAX: Final = 1_024
"""Windows of all topics under one producer name, reported ones included: late messages may come."""

MEMORY_BYTES_MAX: Final = 32 * 1024 * 1024
"""The approximate memory of their sets above which no window is added."""

SPAN_MAX: Final = 65_536
"""Messages marked at once: a small part of those that one name can count in a window."""

SERVER_BYTES_MAX: Final = 255
"""The limit for a server's name; with the id of the run it is the producer name."""


class PlacedSpan(NamedTuple):
    """Marks of consecutive messages, the first of which is at `place` in its batch."""

    place: int
    span: MarkSpan


class Stamper:
    """Marks messages, and returns audit reports of the acknowledged ones; thread-safe.

    Sequences count the messages of a topic and a window of their own times,
    [n * `window_ms`, (n + 1) * `window_ms`). A window is reported once none of its messages is in
    flight and it is late: `lateness_ms` behind the newest time of its topic, or unchanged for so
    long. It is reported again if more is acknowledged later, at most once in `lateness_ms`.

    No count is dropped before it is reported. With too many windows, or too many messages in one,
    the stamper continues under a new producer name, and reports the windows of the old one as soon
    as none of their messages is in flight.
    """

    def __init__(self, server: str, *, window_ms: int = 60_000, lateness_ms: int = 60_000) -> None:
        """`server` is the name of the sending machine or service.

        Raises:
            ConfigurationError: the name or a number is invalid.
        """
        ConfigurationError.raise_if_any(_problems(server, window_ms, lateness_ms))
        self._server = server
        self._window_ms = window_ms
        self._lateness_ms = lateness_ms
        self._lock = threading.Lock()
        self._run = self._new_run()
        # Earlier runs with messages in flight or not reported, by producer name.
        self._past: dict[str, _Run] = {}

    def mark_messages(self, topic: str, times_ms: Sequence[int]) -> list[PlacedSpan]:
        """Return marks for messages, which are in flight from now on.

        A message whose time is before 1970 or after the year 9999 gets no mark.
        """
        spans = []
        start = 0
        # One window is the usual case, and grouping costs a call for each message.
        runs = [times_ms] if len(set(times_ms)) == 1 else _runs(times_ms, self._window_number)
        for times in runs:
            if self._window_number(times[0]) is not None:
                for place in range(0, len(times), SPAN_MAX):
                    some = times[place : place + SPAN_MAX]
                    span = self.next_marks(topic, max(some), len(some))
                    spans.append(PlacedSpan(start + place, span))
            start += len(times)
        return spans

    def next_marks(self, topic: str, time_ms: int, count: int) -> MarkSpan:
        """Return the next `count` marks of a topic, for messages in the window of `time_ms`.

        `count` is 1 to `SPAN_MAX`.

        Raises:
            ValueError: the time is before 1970 or after the year 9999.
        """
        check_time(time_ms)
        start_ms = time_ms - time_ms % self._window_ms
        with self._lock:
            window = self._run.windows.get((topic, start_ms))
            if window is None or window.following + count - 1 > SEQUENCE_MAX:
                window = self._add_window(topic, start_ms)
            if self._run.newest_ms[topic] < time_ms:
                self._run.newest_ms[topic] = time_ms
            start = window.following
            window.following = start + count
            window.in_flight += count
            window.is_touched = True
            return MarkSpan(self._run.producer, start_ms, start, start + count)

    def record_sent(
        self, topic: str, spans: Iterable[PlacedSpan], failed: Collection[int] = ()
    ) -> None:
        """Record that messages are acknowledged, except those at the places `failed`."""
        for place, span in spans:
            if not failed:
                self.record_acknowledged(topic, span)
                continue
            numbers = range(span.start, span.end)
            first = place - span.start
            for is_failed, some in groupby(numbers, lambda number: first + number in failed):  # noqa: B023
                run = list(some)
                part = span._replace(start=run[0], end=run[-1] + 1)
                (self.record_failed if is_failed else self.record_acknowledged)(topic, part)

    def record_acknowledged(self, topic: str, span: MarkSpan) -> None:
        """Record that the log has the messages of a span."""
        with self._lock:
            window = self._window(topic, span)
            window.in_flight -= span.end - span.start
            window.is_touched = True
            is_new = window.acknowledged.add_range(span.start, span.end)
            window.is_changed = is_new or window.is_changed

    def record_failed(self, topic: str, span: MarkSpan) -> None:
        """Record that the messages of a span were not acknowledged and are no longer in flight."""
        with self._lock:
            self._window(topic, span).in_flight -= span.end - span.start

    def due_reports(self, now_s: float) -> list[AuditRecord]:
        """Return reports of the windows that are due; `now_s` is of a monotonic clock."""
        with self._lock:
            reports = list(self._late_reports(now_s))
            for run in self._past.values():
                reports += run.take_reports(is_all=False)
            self._forget_done()
        return _records(reports)

    def remaining_reports(self) -> list[AuditRecord]:
        """Return reports of everything that is not reported, even with messages in flight."""
        with self._lock:
            runs = [*self._past.values(), self._run]
            reports = [each for run in runs for each in run.take_reports(is_all=True)]
            self._forget_done()
        return _records(reports)

    def _window_number(self, time_ms: int) -> int | None:
        return time_ms // self._window_ms if 0 <= time_ms <= TIME_MS_MAX else None

    def _add_window(self, topic: str, start_ms: int) -> "_PublishedWindow":
        run = self._run
        if (topic, start_ms) in run.windows or run.is_full:
            self._past[run.producer] = run
            run = self._run = self._new_run()
        window = run.windows[topic, start_ms] = _PublishedWindow(start_ms + self._window_ms)
        run.newest_ms.setdefault(topic, start_ms)
        return window

    def _new_run(self) -> "_Run":
        return _Run(f"{self._server}/{secrets.token_hex(6)}")

    def _window(self, topic: str, span: MarkSpan) -> "_PublishedWindow":
        run = self._run if span.producer == self._run.producer else self._past[span.producer]
        return run.windows[topic, span.window_ms]

    def _late_reports(self, now_s: float) -> "Iterator[PublishedReport]":
        lateness_s = self._lateness_ms / 1_000
        for (topic, start_ms), window in self._run.windows.items():
            late_ms = self._run.newest_ms[topic] - self._lateness_ms
            if window.is_late(late_ms, now_s, lateness_s):
                window.reported_s = now_s
                yield self._run.take_report(topic, start_ms)

    def _forget_done(self) -> None:
        self._past = {name: run for name, run in self._past.items() if not run.is_done}


def check_time(time_ms: int) -> None:
    """Check that a message can have this time.

    Raises:
        ValueError: the time is before 1970 or after the year 9999.
    """
    if not 0 <= time_ms <= TIME_MS_MAX:
        raise ValueError(f"invalid time of a message: {time_ms}; allowed: 0 to {TIME_MS_MAX}")


class _Run:
    """The counts under one producer name; windows by topic and start."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.windows: dict[tuple[str, int], _PublishedWindow] = {}
        self.newest_ms: dict[str, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether no window should be added."""
        return (
            len(self.windows) >= WINDOWS_MAX
            or sum(window.acknowledged.memory_bytes for window in self.windows.values())
            > MEMORY_BYTES_MAX
        )

    @property
    def is_done(self) -> bool:
        """Whether no message is in flight and everything is reported."""
        return not any(each.in_flight or each.is_changed for each in self.windows.values())

    def take_reports(self, *, is_all: bool) -> "Iterator[PublishedReport]":
        """Yield what is not reported; without `is_all`, only windows with nothing in flight."""
        for (topic, start_ms), window in self.windows.items():
            if window.is_changed and (is_all or not window.in_flight):
                yield self.take_report(topic, start_ms)

    def take_report(self, topic: str, start_ms: int) -> PublishedReport:
        """Return the report of a window, which counts as reported from now on."""
        window = self.windows[topic, start_ms]
        window.is_changed = False
        sequences = window.acknowledged.copy()
        return PublishedReport(topic, self.producer, start_ms, window.end_ms, sequences)


class _PublishedWindow:
    """The messages of one topic and window."""

    __slots__ = (
        "acknowledged",
        "end_ms",
        "following",
        "in_flight",
        "is_changed",
        "is_touched",
        "reported_s",
        "touched_s",
    )

    def __init__(self, end_ms: int) -> None:
        self.end_ms = end_ms
        self.following = 0
        self.in_flight = 0
        self.acknowledged = SequenceSet()
        self.is_changed = False  # since its last report
        self.is_touched = True  # since the last call of `is_late`
        self.touched_s = 0.0
        self.reported_s: float | None = None

    def is_late(self, late_ms: int, now_s: float, lateness_s: float) -> bool:
        """Whether to report the window, if times up to `late_ms` are late."""
        if self.is_touched:
            self.is_touched = False
            self.touched_s = now_s
        if self.in_flight or not self.is_changed:
            return False
        if self.reported_s is not None:
            return now_s - self.reported_s >= lateness_s
        return self.end_ms <= late_ms or now_s - self.touched_s >= lateness_s


def _runs(times_ms: Sequence[int], key: Callable[[int], int | None]) -> list[list[int]]:
    return [list(run) for _, run in groupby(times_ms, key)]


def _records(reports: Iterable[PublishedReport]) -> list[AuditRecord]:
    # Outside the lock: compressing a large set takes tens of milliseconds.
    return [record for report in reports for record in encode_published(report)]


def _problems(server: str, window_ms: int, lateness_ms: int) -> Iterator[str]:
    if not server or len(server.encode(errors="replace")) > SERVER_BYTES_MAX:
        yield f"server is empty or too long: max {SERVER_BYTES_MAX} bytes"
    elif not server.isprintable():
        # Lone surrogates, which cannot be encoded, are not printable either.
        yield f"server has unprintable characters: {server!r}"
    if not 0 < window_ms <= WINDOW_MS_MAX:
        yield f"invalid window: {window_ms} ms; allowed: 1 to {WINDOW_MS_MAX}"
    if lateness_ms < 0:
        yield f"invalid lateness: {lateness_ms} ms; allowed: 0 or more"
