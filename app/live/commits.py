"""Stores how far a stage is, never before the audit knows of the records below."""

import asyncio
from collections.abc import Mapping
from typing import NoReturn, Protocol

from app.live.received_reports import ReceivedReports
from app.log.group_position import Committed
from app.log.group_reader import GroupReader


class ShareOfStage(Protocol):
    """A partition while a stage has it; `committed` is what was stored for it last."""

    committed: Committed

    def reached(self) -> Committed:
        """What may be stored now."""


async def commit_regularly(
    reader: GroupReader,
    shares: Mapping[int, ShareOfStage],
    reports: ReceivedReports | None,
    every_s: float,
) -> NoReturn:
    """Store how far each share is, until cancelled; `shares` change meanwhile."""
    while True:
        await asyncio.sleep(every_s)
        await _commit(reader, shares, reports)


async def _commit(
    reader: GroupReader, shares: Mapping[int, ShareOfStage], reports: ReceivedReports | None
) -> None:
    moved = [
        (partition, share, reached)
        for partition, share in shares.items()
        if (reached := share.reached()) != share.committed
    ]
    if reports is not None and not await reports.report_before_commit():
        return
    commits = {}
    for partition, share, reached in moved:
        # Another member may have it by now, and be further.
        if shares.get(partition) is share:
            share.committed = reached
            commits[partition] = reached
    reader.commit(commits)
