"""Takes over from the live path the events that a replay sends with `only: failed`.

Otherwise an event whose next live attempt is still to come would arrive twice.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from app.domain.handovers import HANDS_OVER, LiveHandover
from app.domain.model import OffsetRange, Replay
from app.domain.processes import ProcessKind
from app.replay_workers.errors import ReplayPostponed
from app.replay_workers.lease_keeper import LeaseKeeper
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
    origin: str,
    request_s: float,
) -> None:
    """Return when the live path sends none of the events of `replay` in `offsets` any more.

    Returns early when `continues` returns False. Without a live process there is nothing to wait
    for: a later one reads the handover before it sends anything. `request_s` is the longest
    duration of a request, which is waited for.

    Raises:
        ReplayPostponed: the live path does not acknowledge the handover.
    """
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
