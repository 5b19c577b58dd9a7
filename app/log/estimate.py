"""What a replay would bring: its events counted, or reckoned from samples of a long range."""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, NamedTuple

from app.domain.dedupe import SeenHashes, event_digest
from app.domain.model import OffsetRange, Window
from app.log.delivered import DeliveredEvents, LiveDeliveries
from app.log.errors import EstimatesBusy, LogUnavailable
from app.log.event import LoggedEvent
from app.log.reader import ReplayReader
from app.log.topics import DELIVERY_LOG

RECORDS_MAX: Final = 200_000
"""So many are read within a second or so; of a longer range, so many are read as samples."""

TIME_S_MAX: Final = 3.0
"""How long somebody waits for an estimate gladly."""

STRETCHES: Final = 20
"""Samples are taken at so many places: enough to meet the hours of a day at different paces."""

AT_A_TIME: Final = 4
"""Each reads as fast as the log gives, and holds up to 30 MB."""

_DELIVERED_PAGES_MAX: Final = 25_000
"""Of a set of offsets: some 10 MB, for those that lie far apart in a very long range."""


class Estimate(NamedTuple):
    """How many events a replay would bring, and how many bytes of bodies.

    `reading_s` is how long its whole range takes to read, at the speed met here.
    """

    events: int
    bytes: int
    is_exact: bool
    reading_s: float
    is_upper_bound: bool = False
    """Whether some of those that do not count may have been counted, for want of time to know."""


@dataclass(frozen=True, slots=True)
class Question:
    """What an estimate is asked for: which records of a range would be sent."""

    offsets: OffsetRange
    key: bytes
    window: Window
    is_wanted: Callable[[str], bool]
    """Of the type of an event."""

    deliveries: LiveDeliveries | None = None
    """Those of the events that need not be sent; without them, all count."""


class Estimator:
    """Reads the log to tell what a replay would bring. Safe to use from any thread; blocks.

    A range of up to `records_max` records is read as a whole, and the answer is exact, unless
    that takes longer than `time_s_max`. Of a longer one, evenly spaced stretches are read, and
    the whole is taken to be like them. Copies of an event are counted once where they are met.
    What live deliveries brought is found out before, from up to as many outcomes, in up to half
    of the time; those that are not read leave the answer an upper bound.
    `properties` are the operator's for the client: TLS, SASL and the like.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic: str = DELIVERY_LOG,
        properties: Mapping[str, str] = {},
        records_max: int = RECORDS_MAX,
        time_s_max: float = TIME_S_MAX,
        at_a_time: int = AT_A_TIME,
    ) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._topic = topic
        self._properties = properties
        self._records_max = records_max
        self._time_s_max = time_s_max
        self._places = threading.BoundedSemaphore(at_a_time)

    def estimate(self, question: Question) -> Estimate:
        """What a replay would bring.

        Raises:
            EstimatesBusy: as many estimates as may be are under way.
            LogUnavailable: the log sent nothing in time, or something unusable.
            HistoryLost: records of the range were deleted meanwhile.
        """
        if question.offsets.end <= question.offsets.start:
            return Estimate(0, 0, is_exact=True, reading_s=0.0)
        if not self._places.acquire(blocking=False):
            raise EstimatesBusy("as many estimates as may be are under way")
        try:
            return self._read(question)
        finally:
            self._places.release()

    def _read(self, question: Question) -> Estimate:
        asked_s = time.monotonic()
        delivered, is_complete = self._delivered(question)
        count = _Count(question.is_wanted, delivered, self._records_max)
        began_s = time.monotonic()
        # Half of the time is left, however long it took to ask where the outcomes lie.
        time_s = max(self._time_s_max - (began_s - asked_s), self._time_s_max / 2)
        with closing(self._open(question)) as reader:
            self._sample(reader, question.offsets, count, time_s)
        found = count.scaled(question.offsets, time.monotonic() - began_s)
        if is_complete:
            return found
        return found._replace(is_exact=False, is_upper_bound=True)

    def _delivered(self, question: Question) -> tuple[DeliveredEvents | None, bool]:
        """What need not be sent, and whether all of it is known."""
        if question.deliveries is None:
            return None, True
        until_s = time.monotonic() + self._time_s_max / 2
        found = question.deliveries.delivered(
            question.offsets,
            lambda: time.monotonic() < until_s,
            records_max=self._records_max,
            pages_max=_DELIVERED_PAGES_MAX,
        )
        return found.events, found.is_complete

    def _open(self, question: Question) -> ReplayReader:
        return ReplayReader(
            self._bootstrap_servers,
            self._topic,
            question.offsets,
            key=question.key,
            window=question.window,
            properties=self._properties,
            stall_s=self._time_s_max,
        )

    def _sample(
        self, reader: ReplayReader, offsets: OffsetRange, count: "_Count", time_s: float
    ) -> None:
        """Count stretch by stretch; what one leaves of its time is there for the next ones."""
        began_s = time.monotonic()
        places = stretches(offsets, self._records_max)
        for number, (start, end) in enumerate(places, 1):
            if len(places) > 1:
                reader.move(start, end)
            until_s = began_s + time_s * number / len(places)
            count.read_stretch(reader, start, until_s)


class _Count:
    """What was met so far, and in how many records."""

    def __init__(
        self,
        is_wanted: Callable[[str], bool],
        delivered: DeliveredEvents | None,
        records_max: int,
    ) -> None:
        self._is_wanted = is_wanted
        self._delivered = delivered
        # It may forget all but half of its entries.
        self._seen = SeenHashes(2 * records_max)
        self._events = 0
        self._bytes = 0
        self._records = 0

    def read_stretch(self, reader: ReplayReader, start: int, until_s: float) -> None:
        """Count what a reader brings from `start` on, until its end or a moment of this clock."""
        position = start
        while not reader.is_done and time.monotonic() < until_s:
            events, position = reader.read()
            for event in events:
                self._take(event)
        self._records += position - start

    def _take(self, event: LoggedEvent) -> None:
        # A copy of what was delivered is not missing either, whatever became of the copy.
        is_new = self._seen.add(event_digest(event.event_id, event.value))
        if is_new and self._is_missing(event) and self._is_wanted(event.event_type):
            self._events += 1
            self._bytes += len(event.value)

    def _is_missing(self, event: LoggedEvent) -> bool:
        return self._delivered is None or event not in self._delivered

    def scaled(self, offsets: OffsetRange, elapsed_s: float) -> Estimate:
        """The whole range, taken to be like what was read of it in `elapsed_s`."""
        length = offsets.end - offsets.start
        if not self._records:
            raise LogUnavailable(
                f"partition {offsets.partition} sent nothing from offset {offsets.start} on "
                f"for {elapsed_s:.1f} s"
            )
        factor = length / self._records
        return Estimate(
            round(self._events * factor),
            round(self._bytes * factor),
            is_exact=self._records == length,
            reading_s=elapsed_s * factor,
        )


def stretches(offsets: OffsetRange, records_max: int) -> list[tuple[int, int]]:
    """The parts `[start, end)` of a range to read: all of it, or samples from end to end of it.

    Together they hold at most `records_max` records, if that is at least `STRETCHES`.
    """
    length = offsets.end - offsets.start
    if length <= records_max:
        return [(offsets.start, offsets.end)]
    size = max(records_max // STRETCHES, 1)
    step = (length - size) / (STRETCHES - 1)
    starts = [offsets.start + round(number * step) for number in range(STRETCHES)]
    return [(start, start + size) for start in starts]
