"""The start of a new group of deliverers, which the matcher has to wait for."""

import asyncio
import logging
from contextlib import suppress
from typing import Final

from app.config import Settings
from app.log.errors import LogUnavailable
from app.log.group_position import GroupPositionReader
from app.log.topics import DELIVERERS, DELIVERY_LOG

_log: Final = logging.getLogger(__name__)

_ANSWER_S: Final = 5.0
_POLL_S: Final = 0.1
_RETRY_S: Final = 1.0


async def wait_until_deliverers_began(settings: Settings, stopping: asyncio.Event) -> None:
    """Return once they have a position in every partition of `delivery_log`, or on `stopping`.

    A new group begins at the log end that it finds when its partitions are assigned. It would
    deliver nothing of what is written before.
    """
    reader = GroupPositionReader(settings, DELIVERERS, _ANSWER_S)
    try:
        while not stopping.is_set():
            try:
                if await asyncio.to_thread(reader.is_committed_in_all, DELIVERY_LOG):
                    return
                pause_s = _POLL_S
            except LogUnavailable as error:
                _log.warning("waiting", extra={"reason": str(error)})
                pause_s = _RETRY_S
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), pause_s)
    finally:
        await asyncio.to_thread(reader.close)
