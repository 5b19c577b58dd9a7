"""Which offsets a retry sends: the failures of its parent, and what the parent never reached.

The parent may be a retry itself: of what it never reached, only what it selects is sent.
"""

from dataclasses import dataclass
from typing import Final

from app.domain.model import OffsetRange, Replay, unread_offsets
from app.domain.offset_set import OffsetSet
from app.store import Store

PARENTS_MAX: Final = 100
"""The longest chain of retries, each of which was stopped before its end."""

_OFFSETS_PER_PAGE: Final = 10_000


class TooManyRetries(Exception):
    """A retry is the last of more than `PARENTS_MAX` unfinished retries."""


@dataclass(frozen=True, slots=True)
class ParentRest:
    """What a replay left to its retry: its failures, and the range that it never reached."""

    failed: OffsetSet
    unread: OffsetRange | None


@dataclass(frozen=True, slots=True)
class RetriedOffsets:
    """The offsets that a retry sends; `parents` begins with its parent."""

    parents: tuple[ParentRest, ...]

    def __contains__(self, offset: int) -> bool:
        for parent in self.parents:
            if offset in parent.failed:
                return True
            unread = parent.unread
            if unread is None or not unread.start <= offset < unread.end:
                return False
        return True


def read_retried(store: Store, parent_id: str, offsets: OffsetRange) -> RetriedOffsets:
    """The offsets that a retry of a replay sends, as far as they lie in `offsets`. Blocks.

    Raises:
        TooManyRetries: see there.
        ReplayNotFound: a parent was deleted.
    """
    parents: list[ParentRest] = []
    next_id: str | None = parent_id
    while next_id is not None:
        if len(parents) >= PARENTS_MAX:
            raise TooManyRetries(f"more than {PARENTS_MAX} unfinished retries of one replay")
        parent = store.replay(next_id)
        # Without offsets it ended before it began: everything is left.
        unread = offsets if parent.offsets is None else unread_offsets(parent)
        parents.append(ParentRest(read_failed(store, parent, offsets), unread))
        next_id = None if unread is None else parent.retry_of
    return RetriedOffsets(tuple(parents))


def read_failed(store: Store, replay: Replay, offsets: OffsetRange) -> OffsetSet:
    """The offsets of a replay's failures in `offsets`. Blocks."""
    # A failure that is not known would not be sent again, so the set is never full.
    failed = OffsetSet(pages_max=max(1, offsets.end - offsets.start))
    limit = min(_OFFSETS_PER_PAGE, max(1, offsets.end - offsets.start))
    after = offsets.start - 1
    while replay.counts.failed:
        page = store.failed_offsets(replay.id, after, limit)
        for offset in page:
            if offset >= offsets.end:
                return failed
            failed.add(offset)
        if not page:
            return failed
        after = page[-1]
    return failed
