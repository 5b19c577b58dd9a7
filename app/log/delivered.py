"""Which of the events owed to a webhook live deliveries brought: what `delivery_outcomes` tells."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import NamedTuple

from app.config import Settings
from app.log.errors import HistoryLost, TopicMissing, WindowNotRetained
from app.log.history import LogHistory
from app.log.outcomes import LiveOutcome, decode_outcome
from app.log.reader import Passage, ReplayReader
from app.log.topics import DELIVERY_OUTCOMES
from app.replay.lateness import disorder_ms
from app.replay.model import OffsetRange, Window
from app.replay.offset_set import PAGES_MAX, OffsetSet


class Delivered(NamedTuple):
    """The offsets in `delivery_log` of what live deliveries brought, as far as it is known."""

    offsets: OffsetSet
    is_complete: bool
    """Whether all outcomes of the window were there to be read, and were read."""

    lost: HistoryLost | None = None
    """Why not all were there to the end."""


@dataclass(frozen=True, slots=True)
class LiveDeliveries:
    """Reads the outcomes of one webhook's events of a window. Safe to use from any thread; blocks.

    `history` looks into `delivery_outcomes`.
    """

    settings: Settings
    history: LogHistory
    webhook_id: str
    window: Window

    def delivered(
        self,
        offsets: OffsetRange,
        go_on: Callable[[], bool],
        *,
        records_max: int | None = None,
        pages_max: int = PAGES_MAX,
    ) -> Delivered:
        """Which of `offsets` live deliveries brought; whatever is not known of counts as missing.

        It reads while `go_on` says so, and the first `records_max` records alone. Without a
        topic of outcomes nothing was delivered live.

        Raises:
            LogUnavailable: the log does not answer.
        """
        found = OffsetSet(pages_max)
        try:
            window, outcomes = self._outcomes()
        except TopicMissing:
            return Delivered(found, is_complete=True)
        is_all = window == self.window
        if records_max is not None and outcomes.end - outcomes.start > records_max:
            outcomes, is_all = replace(outcomes, end=outcomes.start + records_max), False
        if outcomes.end <= outcomes.start:
            return Delivered(found, is_complete=is_all)
        with closing(self._reader(window, outcomes)) as reader:
            try:
                while not reader.is_done and go_on():
                    _note_delivered(reader.read(), offsets, found)
            except HistoryLost as lost:
                return Delivered(found, is_complete=False, lost=lost)
            return Delivered(found, is_all and reader.is_done and not found.is_full)

    def _outcomes(self) -> tuple[Window, OffsetRange]:
        """Where the outcomes of the window lie, or what is left of it."""
        try:
            return self.window, self._look_up(self.window)
        except WindowNotRetained as refusal:
            from_ms = max(self.window.from_ms, refusal.available_from_ms)
            left = replace(self.window, from_ms=from_ms)
            return left, self._look_up(left)

    def _look_up(self, window: Window) -> OffsetRange:
        settings, delays_s = self.settings, self.settings.attempt_delays_s
        attempts_ms = round(1_000 * (sum(delays_s) + len(delays_s) * settings.delivery_timeout_s))
        behind_ms = disorder_ms(settings.lateness_ms) + attempts_ms
        return self.history.offsets_for(self.webhook_id, window, behind_ms)

    def _reader(self, window: Window, outcomes: OffsetRange) -> ReplayReader:
        return ReplayReader(
            self.settings.bootstrap_servers,
            DELIVERY_OUTCOMES,
            outcomes,
            key=self.webhook_id.encode(),
            window=window,
            # What another data centre delivered lies at other offsets of another log.
            origin=self.settings.origin,
            properties=self.settings.kafka_properties,
        )


def _note_delivered(passage: Passage, offsets: OffsetRange, delivered: OffsetSet) -> None:
    for event in passage.events:
        outcome = decode_outcome(event.value)
        if outcome is None or outcome.outcome is not LiveOutcome.DELIVERED:
            continue
        if outcome.partition == offsets.partition and offsets.start <= outcome.offset < offsets.end:
            delivered.add(outcome.offset)
