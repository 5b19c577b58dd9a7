"""Which events earlier replays of a webhook have delivered, without a record of each event.

A replay has delivered the events that it selects between its start and its checkpoint, except for
its failures. So offsets, checkpoint, options and failures in the database suffice.
"""

from collections.abc import Container, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from app.domain.deliveries import DeliveryReplay
from app.domain.model import NewReplay, OffsetRange, Replay, Window, recovered_origin
from app.domain.offset_set import OffsetSet
from app.domain.options import Only
from app.domain.type_filter import TypeFilter
from app.log.event import LoggedEvent
from app.replay_workers.retried import RetriedOffsets, TooManyRetries, read_failed, read_retried
from app.store import ReplayNotFound, Store

EARLIER_REPLAYS_MAX: Final = 1_000
"""Earlier replays of one webhook that are considered, the latest first."""

REPLAYS_SHOWN_MAX: Final = 20
"""Replays of one delivery that are looked at, the latest."""


@dataclass(frozen=True, slots=True)
class ReplayedRange:
    """The events that one replay has delivered.

    They lie in `offsets` and `window`. `retried` limits those of a retry, and `origin` those of a
    recovery; None without a limit.
    """

    offsets: OffsetRange
    window: Window
    types: TypeFilter
    failed: OffsetSet
    retried: RetriedOffsets | None = None
    origin: str | None = None

    def __contains__(self, event: LoggedEvent) -> bool:
        return (
            self.offsets.start <= event.offset < self.offsets.end
            and self.window.from_ms <= event.timestamp_ms < self.window.to_ms
            and is_of_origin(event, self.origin)
            and event.offset not in self.failed
            and (self.retried is None or event.offset in self.retried)
            and self.types.matches(event.event_type)
        )


class ReplayedEvents:
    """The events that some replays have delivered to one target.

    `resent` are the offsets of those that a resend delivered.
    """

    def __init__(
        self, ranges: Iterable[ReplayedRange] = (), resent: Container[int] = frozenset()
    ) -> None:
        self._ranges = tuple(ranges)
        self._resent = resent

    def __contains__(self, event: LoggedEvent) -> bool:
        return event.offset in self._resent or any(event in each for each in self._ranges)


def read_replayed(store: Store, replay: Replay | NewReplay, offsets: OffsetRange) -> ReplayedEvents:
    """The events of `offsets` that earlier replays and resends delivered to the target. Blocks."""
    earlier = store.earlier_replays(
        replay.webhook_id, offsets, EARLIER_REPLAYS_MAX, origin=replay.origin
    )
    own_id = replay.id if isinstance(replay, Replay) else None
    ranges = (
        _replayed_range(store, each, offsets)
        for each in earlier
        if each.id != own_id and each.options.target_url == replay.options.target_url
    )
    if replay.options.target_url is not None:
        return ReplayedEvents(ranges)
    resent = store.resent_offsets(replay.webhook_id, offsets, origin=replay.origin)
    return ReplayedEvents(ranges, resent)


def read_replays_of(
    store: Store, event: LoggedEvent, partition: int, *, origin: str, is_delivered: bool
) -> tuple[DeliveryReplay, ...]:
    """The replays that sent an event of `delivery_log` to its webhook, the oldest first. Blocks.

    `is_delivered` says whether it was delivered live: then replays of missed events left it out.
    """
    webhook_id = (event.key or b"").decode("utf-8", "replace")
    offsets = OffsetRange(partition, event.offset, event.offset + 1)
    found: list[DeliveryReplay] = []
    earlier = store.earlier_replays(webhook_id, offsets, REPLAYS_SHOWN_MAX, origin=origin)
    for replay in reversed(earlier):
        options = replay.options
        if options.target_url is not None or (is_delivered and options.only is Only.FAILED):
            continue
        with suppress(ReplayNotFound, TooManyRetries):
            if event in (sent := _replayed_range(store, replay, offsets)):
                # The last sample is taken just after the end.
                ends = (store.sampled_above_ms(replay.id, event.offset), replay.finished_ms)
                known_ms = min((each for each in ends if each is not None), default=None)
                found.append(DeliveryReplay(replay.id, delivered_by_ms=known_ms))
                is_delivered = True
            elif event.offset in sent.failed:
                found.append(DeliveryReplay(replay.id, store.find_failure(replay.id, event.offset)))
    return tuple(found)


def _replayed_range(store: Store, replay: Replay, wanted: OffsetRange) -> ReplayedRange:
    assert replay.offsets is not None
    assert replay.checkpoint is not None
    start, end = max(replay.offsets.start, wanted.start), min(replay.checkpoint, wanted.end)
    offsets = OffsetRange(wanted.partition, start, end)
    return ReplayedRange(
        offsets,
        replay.window,
        TypeFilter(replay.options.event_types),
        read_failed(store, replay, offsets),
        None if replay.retry_of is None else read_retried(store, replay.retry_of, offsets),
        recovered_origin(replay.reason, replay.origin),
    )


def is_of_origin(event: LoggedEvent, origin: str | None) -> bool:
    """Whether an event was published in a data centre; None stands for all of them.

    Events of producers that name none are of the data centre whose log has them.
    """
    return origin is None or event.origin in ("", origin)
