"""Takes over the events that a replay sends with `only: failed`, from the live path and retries.

Otherwise an event whose next attempt is still to come would arrive twice.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from app.config import Settings
from app.domain.deliveries import DeliveryStatus
from app.domain.delivery import LiveOutcome
from app.domain.handovers import HANDS_OVER, LiveHandover
from app.domain.model import OffsetRange, Replay
from app.domain.processes import ProcessKind
from app.domain.resends import Resend, ResendResult
from app.replay_workers.errors import ReplayPostponed
from app.replay_workers.lease_keeper import LeaseKeeper
from app.replay_workers.outcome_publisher import EndedRetries, OutcomePublisher
from app.store import Store

POLL_S: Final = 0.2

MARGIN_S: Final = 10.0
"""Time for the live path to learn of a handover and to write outcomes, after its last request."""


async def take_over_from_live(
    replay: Replay,
    offsets: OffsetRange,
    lease: LeaseKeeper,
    continues: Callable[[], bool],
    *,
    settings: Settings,
    outcomes: OutcomePublisher,
) -> None:
    """Return when only `replay` sends its events in `offsets`: no live path, no scheduled retry.

    Returns early when `continues` returns False. Without a live process there is nothing to wait
    for: a later one reads the handover before it sends anything.

    Raises:
        ReplayPostponed: the live path does not acknowledge the handover, or a request of a
            scheduled retry does not end.
    """
    origin = settings.origin
    request_s = settings.connect_timeout_s + settings.delivery_timeout_s
    handover = LiveHandover(
        replay.id,
        replay.webhook_id,
        offsets,
        replay.window,
        replay.options.event_types,
        replay.created_ms,
    )
    await lease.query(lambda store: store.request_handover(handover, origin=origin))
    until_s = time.monotonic() + request_s + MARGIN_S
    while continues() and not await lease.query(lambda store: _is_done(store, replay.id, origin)):
        if time.monotonic() >= until_s:
            raise ReplayPostponed("the live path, which has not handed over its events")
        await asyncio.sleep(POLL_S)
    # After the live path, which creates no further ones then.
    published: set[str] = set()
    while continues():
        retries = await lease.query(
            lambda store: store.retries_of_handover(handover, origin=origin)
        )
        new = [each for each in retries if each.id not in published]
        # Before they end: a crash in between repeats this.
        await outcomes.publish_ended_retries([_left_to(handover, each) for each in new])
        published.update(each.id for each in new)
        if not await lease.query(
            lambda store: store.take_over_retries(handover, settings.history_ms, origin=origin)
        ):
            return
        if time.monotonic() >= until_s:
            raise ReplayPostponed("a worker, which sends a scheduled retry")
        await asyncio.sleep(POLL_S)


def _left_to(handover: LiveHandover, resend: Resend) -> EndedRetries:
    assert resend.retry is not None
    result = ResendResult(DeliveryStatus.SKIPPED, reason=handover.reason)
    return EndedRetries(resend.webhook_id, resend.place, resend.retry, LiveOutcome.SKIPPED, result)


def _is_done(store: Store, replay_id: str, origin: str) -> bool:
    if store.is_handover_acknowledged(replay_id):
        return True
    # A live process of an earlier version does not hand over.
    return not any(
        each.kind is ProcessKind.LIVE
        and each.origin == origin
        and not each.is_silent
        and each.details.get(HANDS_OVER)
        for each in store.processes()
    )
