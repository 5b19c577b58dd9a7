"""What a producer counts: a mark for each message, and what was acknowledged by windows of time."""

import secrets
import threading
from collections.abc import Iterable, Iterator
from typing import Final

from logbroker.client.audit_event import (
    WINDOW_MS_MAX,
    AuditRecord,
    Published,
    encode_published,
)
from logbroker.client.audit_mark import SEQUENCE_MAX, TIME_MS_MAX, Mark, MarkSpan
from logbroker.client.sequence_set import SequenceSet
from logbroker.errors import ConfigurationError

WINDOWS_MAX: Final = 1_024
"""Windows of all topics that one name counts; published ones too, as late messages may come."""

KEPT_BYTES_MAX: Final = 32 * 1024 * 1024
"""About what their sets take when no window is added any more."""

SPAN_MAX: Final = 65_536
"""Messages that are stamped at once: a small part of those that one name can count in a window."""

SERVER_BYTES_MAX: Final = 255
"""Of a server's name; with what tells one run from another it is a producer's name."""


class Stamper:
    """Stamps messages, and gives the monitoring events of what was acknowledged; thread-safe.

    Sequences are counted for each topic and each window of the messages' own times, which are
    [n * `window_ms`, (n + 1) * `window_ms`). A window is published once nothing of it is under way
    and it is late: `lateness_ms` behind the newest time stamped for its topic, or untouched for so
    long. If more is acknowledged later, it is published again, at most once in `lateness_ms`.

    Nothing that was counted is dropped unpublished. Where there would be too many windows, or too
    many messages in one, it goes on under a new name; the old one's windows are published as soon
    as nothing of them is under way.
    """

    def __init__(self, server: str, *, window_ms: int = 60_000, lateness_ms: int = 60_000) -> None:
        """`server` is the name of the machine or the service that sends.

        Raises:
            ConfigurationError: the name, or a number, cannot be.
        """
        ConfigurationError.raise_if_any(_problems(server, window_ms, lateness_ms))
        self._server = server
        self._window_ms = window_ms
        self._lateness_ms = lateness_ms
        self._lock = threading.Lock()
        self._run = self._new_run()
        # Those before it that are not done, by name.
        self._past: dict[str, _Run] = {}

    def stamp(self, topic: str, time_ms: int) -> Mark:
        """The mark of the next message to a topic, which is under way from now on.

        Raises:
            ValueError: the time is before 1970 or after the year 9999.
        """
        span = self.stamp_span(topic, time_ms, 1)
        return Mark(span.producer, span.window_ms, span.start)

    def stamp_span(self, topic: str, time_ms: int, count: int) -> MarkSpan:
        """The marks of the next messages to a topic, whose times are all in the window of this one.

        `count` is 1 to `SPAN_MAX`.

        Raises:
            ValueError: the time is before 1970 or after the year 9999.
        """
        start_ms = self.window_start_ms(time_ms)
        with self._lock:
            window = self._run.windows.get((topic, start_ms))
            if window is None or window.following + count - 1 > SEQUENCE_MAX:
                window = self._open(topic, start_ms)
            if self._run.newest_ms[topic] < time_ms:
                self._run.newest_ms[topic] = time_ms
            start = window.following
            window.following = start + count
            window.under_way += count
            window.is_touched = True
            return MarkSpan(self._run.producer, start_ms, start, start + count)

    def window_start_ms(self, time_ms: int) -> int:
        """Where the window of a time begins.

        Raises:
            ValueError: the time is before 1970 or after the year 9999.
        """
        if not 0 <= time_ms <= TIME_MS_MAX:
            raise ValueError(f"a message cannot have the time {time_ms}")
        return time_ms - time_ms % self._window_ms

    def acknowledged(self, topic: str, mark: Mark) -> None:
        """The log has the message of a mark."""
        with self._lock:
            window = self._marked(topic, mark)
            window.under_way -= 1
            window.is_touched = True
            window.is_changed = window.acknowledged.add(mark.sequence) or window.is_changed

    def span_acknowledged(self, topic: str, span: MarkSpan) -> None:
        """The log has the messages of all marks of a span."""
        with self._lock:
            window = self._marked(topic, span)
            window.under_way -= span.end - span.start
            window.is_touched = True
            is_new = window.acknowledged.add_range(span.start, span.end)
            window.is_changed = is_new or window.is_changed

    def failed(self, topic: str, mark: Mark) -> None:
        """The message of a mark will not come any more, as far as its sender can tell."""
        with self._lock:
            self._marked(topic, mark).under_way -= 1

    def due(self, now_s: float) -> list[AuditRecord]:
        """The events of the windows to publish now, by a clock that never goes back."""
        with self._lock:
            found = list(self._late(now_s))
            for run in self._past.values():
                found += run.publish(is_all=False)
            self._forget_done()
        return _records(found)

    def rest(self) -> list[AuditRecord]:
        """The events of all that is not published yet, whatever is under way."""
        with self._lock:
            runs = [*self._past.values(), self._run]
            found = [each for run in runs for each in run.publish(is_all=True)]
            self._forget_done()
        return _records(found)

    def _open(self, topic: str, start_ms: int) -> "_Window":
        run = self._run
        if (topic, start_ms) in run.windows or run.is_full:
            self._past[run.producer] = run
            run = self._run = self._new_run()
        window = run.windows[topic, start_ms] = _Window(start_ms + self._window_ms)
        run.newest_ms.setdefault(topic, start_ms)
        return window

    def _new_run(self) -> "_Run":
        return _Run(f"{self._server}/{secrets.token_hex(6)}")

    def _marked(self, topic: str, mark: Mark | MarkSpan) -> "_Window":
        run = self._run if mark.producer == self._run.producer else self._past[mark.producer]
        return run.windows[topic, mark.window_ms]

    def _late(self, now_s: float) -> "Iterator[Published]":
        lateness_s = self._lateness_ms / 1_000
        for (topic, start_ms), window in self._run.windows.items():
            late_ms = self._run.newest_ms[topic] - self._lateness_ms
            if window.is_late(late_ms, now_s, lateness_s):
                window.published_s = now_s
                yield self._run.take(topic, start_ms)

    def _forget_done(self) -> None:
        self._past = {name: run for name, run in self._past.items() if not run.is_done}


class _Run:
    """What is counted under one name; windows by topic and start."""

    def __init__(self, producer: str) -> None:
        self.producer = producer
        self.windows: dict[tuple[str, int], _Window] = {}
        self.newest_ms: dict[str, int] = {}

    @property
    def is_full(self) -> bool:
        """Whether no window should be added."""
        return (
            len(self.windows) >= WINDOWS_MAX
            or sum(window.acknowledged.bytes_kept for window in self.windows.values())
            > KEPT_BYTES_MAX
        )

    @property
    def is_done(self) -> bool:
        """Whether all that was stamped is settled and published."""
        return not any(each.under_way or each.is_changed for each in self.windows.values())

    def publish(self, *, is_all: bool) -> "Iterator[Published]":
        """What is not published yet; without `is_all`, of windows with nothing under way."""
        for (topic, start_ms), window in self.windows.items():
            if window.is_changed and (is_all or not window.under_way):
                yield self.take(topic, start_ms)

    def take(self, topic: str, start_ms: int) -> Published:
        """All that was acknowledged in a window; it counts as published from now on."""
        window = self.windows[topic, start_ms]
        window.is_changed = False
        return Published(topic, self.producer, start_ms, window.end_ms, window.acknowledged.copy())


class _Window:
    """The messages of one topic and window."""

    __slots__ = (
        "acknowledged",
        "end_ms",
        "following",
        "is_changed",
        "is_touched",
        "published_s",
        "touched_s",
        "under_way",
    )

    def __init__(self, end_ms: int) -> None:
        self.end_ms = end_ms
        self.following = 0
        self.under_way = 0
        self.acknowledged = SequenceSet()
        # Since it was published, and since it was looked at.
        self.is_changed = False
        self.is_touched = True
        self.touched_s = 0.0
        self.published_s: float | None = None

    def is_late(self, late_ms: int, now_s: float, lateness_s: float) -> bool:
        """Whether to publish it, when times up to `late_ms` are late."""
        if self.is_touched:
            self.is_touched = False
            self.touched_s = now_s
        if self.under_way or not self.is_changed:
            return False
        if self.published_s is not None:
            return now_s - self.published_s >= lateness_s
        return self.end_ms <= late_ms or now_s - self.touched_s >= lateness_s


def _records(found: Iterable[Published]) -> list[AuditRecord]:
    # Not under the lock: packing a large set takes tens of milliseconds.
    return [record for published in found for record in encode_published(published)]


def _problems(server: str, window_ms: int, lateness_ms: int) -> Iterator[str]:
    if not server or len(server.encode(errors="replace")) > SERVER_BYTES_MAX:
        yield f"server has no name, or one of more than {SERVER_BYTES_MAX} bytes"
    elif not server.isprintable():
        # Neither can what is not to be encoded, a lone surrogate, be printed.
        yield f"server is {server!r}, which cannot be printed"
    if not 0 < window_ms <= WINDOW_MS_MAX:
        yield f"a window has {window_ms} ms; allowed are 1 to {WINDOW_MS_MAX}"
    if lateness_ms < 0:
        yield f"the lateness is {lateness_ms} ms; it cannot be below 0"
