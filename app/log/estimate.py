"""Estimates of a replay: its events counted, or extrapolated from samples of a long range."""

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
from app.log.reader_clients import ReaderClients
from app.log.topics import DELIVERY_LOG

RECORDS_MAX: Final = 200_000
"""Records that are read in about a second, or sampled from a longer range."""

TIME_S_MAX: Final = 3.0
"""The time limit of an estimate."""

SAMPLES: Final = 20
"""The number of samples: enough for the different rates of the hours of a day."""

AT_A_TIME: Final = 4
"""Each reads at full speed, and needs up to 30 MB."""

_DELIVERED_PAGES_MAX: Final = 25_000
"""Pages of a set of offsets: 10 MB, for offsets that are far apart in a very long range."""


class Estimate(NamedTuple):
    """The number of events that a replay would send, and the bytes of their bodies.

    `reading_s` is the time to read its whole range, at the speed of the estimate.
    """

    events: int
    bytes: int
    is_exact: bool
    reading_s: float
    is_upper_bound: bool = False
    """Whether events that need not be sent may be included, for lack of time."""

    unreadable_batches: int = 0
    """The batches that cannot be read, of those that the estimate met; no event of them counts."""

    unreadable_offsets: int = 0
    """The offsets of these batches within the range."""


@dataclass(frozen=True, slots=True)
class EstimateQuery:
    """Which records of a range a replay would send."""

    offsets: OffsetRange
    key: bytes
    window: Window
    is_wanted: Callable[[str], bool]
    """A filter of event types."""

    deliveries: LiveDeliveries | None = None
    """Live deliveries of the events, which need not be sent again; None to count all."""

    is_replayed: Callable[[LoggedEvent], bool] = lambda _: False
    """Whether an earlier replay delivered an event, which need not be sent again."""


class Estimator:
    """Reads the log to estimate replays. Thread-safe; blocks.

    A range of up to `records_max` records is read completely, and the estimate is exact, unless
    that takes longer than `time_s_max`. A longer range is extrapolated from evenly spaced samples.
    Duplicates within what is read count once. Live deliveries are looked up first, in as many
    outcomes and up to half of the time; unread outcomes make the estimate an upper bound.
    `properties` are the operator's for the client, such as those of TLS and SASL.
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
        self._clients = ReaderClients(bootstrap_servers, properties)
        self._topic = topic
        self._records_max = records_max
        self._time_s_max = time_s_max
        self._slots = threading.BoundedSemaphore(at_a_time)

    def estimate(self, query: EstimateQuery) -> Estimate:
        """Return the estimate of a replay.

        Raises:
            EstimatesBusy: `at_a_time` estimates are running.
            LogUnavailable: the log did not answer in time, or with an error.
            HistoryLost: records of the range were deleted meanwhile.
        """
        if query.offsets.end <= query.offsets.start:
            return Estimate(0, 0, is_exact=True, reading_s=0.0)
        if not self._slots.acquire(blocking=False):
            raise EstimatesBusy("estimate limit reached; retry later")
        try:
            return self._read(query)
        finally:
            self._slots.release()

    def _read(self, query: EstimateQuery) -> Estimate:
        started_s = time.monotonic()
        delivered, is_complete = self._delivered(query)
        count = _EventCount(query, delivered, self._records_max)
        began_s = time.monotonic()
        # At least half of the time is left for reading.
        time_s = max(self._time_s_max - (began_s - started_s), self._time_s_max / 2)
        with closing(self._open(query)) as reader:
            self._sample(reader, query.offsets, count, time_s)
        found = count.scaled(query.offsets, time.monotonic() - began_s)
        if is_complete:
            return found
        return found._replace(is_exact=False, is_upper_bound=True)

    def _delivered(self, query: EstimateQuery) -> tuple[DeliveredEvents | None, bool]:
        """Return what need not be sent, and whether it is complete."""
        if query.deliveries is None:
            return None, True
        until_s = time.monotonic() + self._time_s_max / 2
        found = query.deliveries.delivered(
            query.offsets,
            lambda: time.monotonic() < until_s,
            records_max=self._records_max,
            pages_max=_DELIVERED_PAGES_MAX,
        )
        return found.events, found.is_complete

    def _open(self, query: EstimateQuery) -> ReplayReader:
        return ReplayReader(
            self._clients,
            self._topic,
            query.offsets,
            key=query.key,
            window=query.window,
            stall_s=self._time_s_max,
        )

    def _sample(
        self, reader: ReplayReader, offsets: OffsetRange, count: "_EventCount", time_s: float
    ) -> None:
        """Count sample by sample; unused time is left to the next ones."""
        began_s = time.monotonic()
        ranges = sample_ranges(offsets, self._records_max)
        for number, (start, end) in enumerate(ranges, 1):
            if len(ranges) > 1:
                reader.move(start, end)
            until_s = began_s + time_s * number / len(ranges)
            count.read_range(reader, start, until_s)


class _EventCount:
    """The events counted so far, and the number of records read."""

    def __init__(
        self, query: EstimateQuery, delivered: DeliveredEvents | None, records_max: int
    ) -> None:
        self._is_wanted = query.is_wanted
        self._is_replayed = query.is_replayed
        self._delivered = delivered
        self._seen = SeenHashes(min(records_max, query.offsets.end - query.offsets.start))
        self._events = 0
        self._bytes = 0
        self._records = 0
        self._unreadable_batches = 0
        self._unreadable_offsets = 0

    def read_range(self, reader: ReplayReader, start: int, until_s: float) -> None:
        """Count the events of a reader from `start` on, until its end or a monotonic time."""
        position = start
        while not reader.is_done and time.monotonic() < until_s:
            fetched = reader.read()
            position = fetched.position
            for event in fetched.events:
                self._count(event)
            for batch in fetched.unreadable:
                self._unreadable_batches += 1
                self._unreadable_offsets += batch.offsets
        self._records += position - start

    def _count(self, event: LoggedEvent) -> None:
        # A duplicate of a delivered event is not missing either, whatever its own outcome.
        is_new = self._seen.add(event_digest(event.event_id, event.value))
        if is_new and self._is_missing(event) and self._is_wanted(event.event_type):
            self._events += 1
            self._bytes += len(event.value)

    def _is_missing(self, event: LoggedEvent) -> bool:
        if self._delivered is not None and event in self._delivered:
            return False
        return not self._is_replayed(event)

    def scaled(self, offsets: OffsetRange, elapsed_s: float) -> Estimate:
        """Extrapolate to the whole range from what was read in `elapsed_s`."""
        length = offsets.end - offsets.start
        if not self._records:
            raise LogUnavailable(
                f"no records of partition {offsets.partition} from offset {offsets.start} on "
                f"within {elapsed_s:.1f} s"
            )
        factor = length / self._records
        return Estimate(
            round(self._events * factor),
            round(self._bytes * factor),
            is_exact=self._records == length,
            reading_s=elapsed_s * factor,
            unreadable_batches=self._unreadable_batches,
            unreadable_offsets=self._unreadable_offsets,
        )


def sample_ranges(offsets: OffsetRange, records_max: int) -> list[tuple[int, int]]:
    """Return the parts `[start, end)` of a range to read: all of it, or evenly spaced samples.

    Together they have at most `records_max` records, if that is at least `SAMPLES`.
    """
    length = offsets.end - offsets.start
    if length <= records_max:
        return [(offsets.start, offsets.end)]
    size = max(records_max // SAMPLES, 1)
    step = (length - size) / (SAMPLES - 1)
    starts = [offsets.start + round(number * step) for number in range(SAMPLES)]
    return [(start, start + size) for start in starts]
