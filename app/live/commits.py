"""Commits the positions of a stage, after the audit has its counts."""

import asyncio
from collections.abc import Mapping
from typing import NoReturn, Protocol

from app.live.received_reports import ReceivedReports
from app.log.group_position import Committed
from app.log.group_reader import GroupReader


class CommittedPartition(Protocol):
    """An assigned partition; `committed` is the position that was committed last."""

    committed: Committed

    @property
    def is_idle(self) -> bool:
        """Whether everything that was read is done, so that the position stays."""

    def position(self) -> Committed:
        """The position to commit."""


async def commit_regularly(
    reader: GroupReader,
    partitions: Mapping[int, CommittedPartition],
    reports: ReceivedReports | None,
    interval_s: float,
    changed: asyncio.Event,
) -> NoReturn:
    """Commit the positions of all `partitions`, which may change, until cancelled.

    `changed` is set when partitions are added or records are read. It pauses while there is nothing
    to commit.
    """
    while True:
        await changed.wait()
        await asyncio.sleep(interval_s)
        changed.clear()
        await _commit(reader, partitions, reports)
        if not all(map(_is_committed, partitions.values())):
            changed.set()


def _is_committed(partition: CommittedPartition) -> bool:
    return partition.is_idle and partition.position() == partition.committed


async def _commit(
    reader: GroupReader,
    partitions: Mapping[int, CommittedPartition],
    reports: ReceivedReports | None,
) -> None:
    moved = [
        (number, partition, position)
        for number, partition in partitions.items()
        if (position := partition.position()) != partition.committed
    ]
    if reports is not None and not await reports.report_before_commit():
        return
    commits = {}
    for number, partition, position in moved:
        # Another member may have it now, with a higher position.
        if partitions.get(number) is partition:
            partition.committed = position
            commits[number] = position
    reader.commit(commits)
