"""Which events of a webhook were delivered live, by the topic `delivery_outcomes`."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.config import Settings
from app.domain.dedupe import lasting_digest
from app.domain.delivery import LiveOutcome
from app.domain.digest_set import DigestSet
from app.domain.lateness import disorder_ms
from app.domain.model import OffsetRange, Window
from app.domain.offset_set import PAGES_MAX, OffsetSet
from app.domain.retry import longest_retries_s
from app.log.errors import HistoryLost, TopicMissing, WindowNotRetained
from app.log.event import LoggedEvent
from app.log.history import LogHistory
from app.log.outcomes import DeliveryOutcome, decode_outcome
from app.log.reader import FetchedEvents, ReplayReader
from app.log.reader_clients import ReaderClients
from app.log.topics import DELIVERY_OUTCOMES


class DeliveredEvents:
    """The events of a range of `delivery_log` that were delivered live, in bounded memory.

    Events delivered by this data centre (`origin`) are identified by offset. Those of another one
    are identified by digest, because their offsets refer to another log.
    """

    def __init__(self, origin: str, offsets: OffsetRange, pages_max: int) -> None:
        self._origin = origin
        self._range = offsets
        self._here = OffsetSet(pages_max)
        self._elsewhere = DigestSet()

    def __contains__(self, event: LoggedEvent) -> bool:
        if event.offset in self._here:
            return True
        if event.origin in ("", self._origin) or not len(self._elsewhere):
            return False
        return lasting_digest(event.event_id, event.value) in self._elsewhere

    @property
    def is_full(self) -> bool:
        """Whether some events did not fit."""
        return self._here.is_full or self._elsewhere.is_full

    def add(self, outcome: DeliveryOutcome, origin: str) -> None:
        """Add an outcome of an event that the data centre `origin` delivered."""
        if origin != self._origin:
            if origin and outcome.digest is not None:
                self._elsewhere.add(outcome.digest)
        elif self._is_in_range(outcome):
            self._here.add(outcome.offset)

    def _is_in_range(self, outcome: DeliveryOutcome) -> bool:
        place = self._range
        return outcome.partition == place.partition and place.start <= outcome.offset < place.end


class DeliveredLookup(NamedTuple):
    """The events that were delivered live, as far as known."""

    events: DeliveredEvents
    is_complete: bool
    """Whether all outcomes of the window were available and read."""

    lost: HistoryLost | None = None
    """The error that ended the read early."""


@dataclass(frozen=True, slots=True)
class LiveDeliveries:
    """Reads the outcomes of one webhook's events of a window. Thread-safe; blocks.

    `history` looks up offsets of `delivery_outcomes`. `late_until_ms` is when the last late event
    of the window arrived, if any: its outcome was written or mirrored about then.
    """

    settings: Settings
    history: LogHistory
    webhook_id: str
    window: Window
    late_until_ms: int | None = None

    def delivered(
        self,
        offsets: OffsetRange,
        may_continue: Callable[[], bool],
        *,
        records_max: int | None = None,
        pages_max: int = PAGES_MAX,
    ) -> DeliveredLookup:
        """Return which events of `offsets` were delivered live; unknown ones count as missing.

        It reads while `may_continue` returns True, and at most `records_max` records. Without the
        topic of outcomes, nothing was delivered live.

        Raises:
            LogUnavailable: the log does not answer.
        """
        found = DeliveredEvents(self.settings.origin, offsets, pages_max)
        try:
            window, outcomes = self._outcomes()
        except TopicMissing:
            return DeliveredLookup(found, is_complete=True)
        is_all = window == self.window
        if records_max is not None and outcomes.end - outcomes.start > records_max:
            outcomes, is_all = replace(outcomes, end=outcomes.start + records_max), False
        if outcomes.end <= outcomes.start:
            return DeliveredLookup(found, is_complete=is_all)
        with closing(self._reader(window, outcomes)) as reader:
            try:
                while not reader.is_done and may_continue():
                    fetched = reader.read()
                    _add_delivered(fetched, found)
                    # The events whose outcomes cannot be read count as missing.
                    is_all = is_all and not fetched.unreadable
            except HistoryLost as lost:
                return DeliveredLookup(found, is_complete=False, lost=lost)
            return DeliveredLookup(found, is_all and reader.is_done and not found.is_full)

    def _outcomes(self) -> tuple[Window, OffsetRange]:
        """Return the offsets of the outcomes of the window, or of its retained part."""
        try:
            return self.window, self._look_up(self.window)
        except WindowNotRetained as refusal:
            from_ms = max(self.window.from_ms, refusal.available_from_ms)
            left = replace(self.window, from_ms=from_ms)
            return left, self._look_up(left)

    def _look_up(self, window: Window) -> OffsetRange:
        behind_ms = outcome_disorder_ms(self.settings, window, self.late_until_ms)
        return self.history.offsets_for(self.webhook_id, window, behind_ms)

    def _reader(self, window: Window, outcomes: OffsetRange) -> ReplayReader:
        return ReplayReader(
            ReaderClients(self.settings.bootstrap_servers, self.settings.kafka_properties),
            DELIVERY_OUTCOMES,
            outcomes,
            key=self.webhook_id.encode(),
            window=window,
        )


def outcome_disorder_ms(settings: Settings, window: Window, late_until_ms: int | None) -> int:
    """How long after the end of a window the outcomes of its events may be written.

    `late_until_ms` is when its last late event arrived, if any.
    """
    delays_s = settings.attempt_delays_s
    # Live delivery does not use schedules of webhooks that exceed it.
    retries_s = longest_retries_s(delays_s[1:])
    requests_s = len(delays_s) * settings.delivery_timeout_s
    attempts_ms = round(1_000 * (delays_s[0] + retries_s + requests_s))
    late_ms = max(0, (late_until_ms or 0) - window.to_ms)
    return late_ms + disorder_ms(settings.lateness_ms) + attempts_ms


def _add_delivered(fetched: FetchedEvents, found: DeliveredEvents) -> None:
    for event in fetched.events:
        outcome = decode_outcome(event.value)
        if outcome is not None and outcome.outcome is LiveOutcome.DELIVERED:
            found.add(outcome, event.origin)
