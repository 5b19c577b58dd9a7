"""What one consumer group has the registry keep, in the order in which it was asked."""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from logbroker.errors import (
    CoordinatorNotAvailable,
    RegistryUnavailable,
    RequestRefused,
    StorageFailed,
)
from logbroker.groups.stored import CommittedOffset, StoredMembership, TopicPartition
from logbroker.registry.registry import Registry
from logbroker.server.workers import Workers

log = logging.getLogger("logbroker.groups.writes")

Done = Callable[[RequestRefused | None], None]
"""Told once, on the loop's thread, that a write is durable, or why it may not be."""

JOINED_OFFSETS_MAX: Final = 500
"""Commits that wait together are written as one up to so many offsets: some 50 KB in ZooKeeper."""


@dataclass(slots=True)
class _Write:
    call: Callable[[], None] | None
    """None for one who only waits for those before."""
    done: list[Done]
    offsets: dict[TopicPartition, CommittedOffset] | None = None
    """Of a commit, which later ones may join until it begins."""


class GroupWrites:
    """One write at a time, on the crew's threads; what is asked meanwhile waits in line.

    `on_begin` and `on_end` hear of each write that reaches the registry; the latter what became
    of it, after all who asked for it.
    """

    def __init__(
        self,
        group_id: str,
        registry: Registry,
        crew: Workers,
        on_begin: Callable[[], None],
        on_end: Done,
    ) -> None:
        self._group_id = group_id
        self._registry = registry
        self._crew = crew
        self._on_begin = on_begin
        self._on_end = on_end
        self._line: deque[_Write] = deque()
        self._is_writing = False

    @property
    def is_idle(self) -> bool:
        """Whether everything that was asked is done."""
        return not self._is_writing and not self._line

    def store(self, membership: StoredMembership, done: Done) -> None:
        """Replace the membership."""
        self._add(lambda: self._registry.store_membership(self._group_id, membership), done)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], done: Done) -> None:
        """Set offsets, in one write with other commits that wait where there are some."""
        joined = self._line[-1].offsets if self._line else None
        if joined is not None and len(joined) + len(offsets) <= JOINED_OFFSETS_MAX:
            joined.update(offsets)
            self._line[-1].done.append(done)
            return
        kept = dict(offsets)
        write = _Write(lambda: self._registry.commit_offsets(self._group_id, kept), [done], kept)
        self._line.append(write)
        self._begin_next()

    def delete_offsets(self, places: Sequence[TopicPartition], done: Done) -> None:
        """Forget offsets."""
        self._add(lambda: self._registry.delete_offsets(self._group_id, places), done)

    def delete_group(self, done: Done) -> None:
        """Forget the group."""
        self._add(lambda: self._registry.delete_group(self._group_id), done)

    def when_done(self, call: Callable[[], None]) -> None:
        """Call once everything that was asked before has ended, be it well or not."""
        self._add(None, lambda _: call())

    def give_up(self, reason: RequestRefused) -> None:
        """Begin nothing more; a write that has begun still ends by itself."""
        abandoned, self._line = self._line, deque()
        for write in abandoned:
            for done in write.done:
                done(reason)

    def _add(self, call: Callable[[], None] | None, done: Done) -> None:
        self._line.append(_Write(call, [done]))
        self._begin_next()

    def _begin_next(self) -> None:
        while self._line and not self._is_writing:
            write = self._line.popleft()
            if write.call is None:
                _tell(write, None)
                continue
            self._is_writing = True
            self._on_begin()
            self._crew.run(write.call, partial(self._ended, write))

    def _ended(self, write: _Write, result: Exception | None) -> None:
        self._is_writing = False
        failure = None if result is None else self._as_refusal(result)
        _tell(write, failure)
        self._begin_next()
        self._on_end(failure)

    def _as_refusal(self, error: Exception) -> RequestRefused:
        """What a client is told; clients of groups know no code for a registry or a disk."""
        if not isinstance(error, RequestRefused):
            log.error("write failed group=%r", self._group_id, exc_info=error)
            return CoordinatorNotAvailable("internal error")
        log.warning("write failed group=%r reason=%s", self._group_id, error)
        if isinstance(error, RegistryUnavailable | StorageFailed):
            return CoordinatorNotAvailable(str(error))
        return error


def _tell(write: _Write, failure: RequestRefused | None) -> None:
    for done in write.done:
        done(failure)
