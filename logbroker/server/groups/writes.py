"""The registry writes of one consumer group, in the order of submission."""

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
from logbroker.server.worker_pool import WorkerPool

log = logging.getLogger("logbroker.groups.writes")

Done = Callable[[RequestRefused | None], None]
"""Called once on the loop's thread: with None when a write is durable, else with its error."""

JOINED_OFFSETS_MAX: Final = 500
"""Queued commits are merged up to this many offsets: about 50 KB in ZooKeeper."""


@dataclass(slots=True)
class _Write:
    call: Callable[[], None] | None
    """None for an entry that only waits for the writes before it."""
    done: list[Done]
    offsets: dict[TopicPartition, CommittedOffset] | None = None
    """The offsets of a commit, into which later commits may be merged until it starts."""


class GroupWrites:
    """Runs one write at a time on the pool and queues the others.

    `on_begin` and `on_end` are called for each write to the registry; `on_end` gets its result
    after the callers of the write.
    """

    def __init__(
        self,
        group_id: str,
        registry: Registry,
        pool: WorkerPool,
        on_begin: Callable[[], None],
        on_end: Done,
    ) -> None:
        self._group_id = group_id
        self._registry = registry
        self._pool = pool
        self._on_begin = on_begin
        self._on_end = on_end
        self._queue: deque[_Write] = deque()
        self._is_writing = False

    @property
    def is_idle(self) -> bool:
        """Whether all submitted writes have ended."""
        return not self._is_writing and not self._queue

    def store(self, membership: StoredMembership, done: Done) -> None:
        """Replace the stored membership."""
        self._append(lambda: self._registry.store_membership(self._group_id, membership), done)

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], done: Done) -> None:
        """Commit offsets, merged into the last queued commit if possible."""
        joined = self._queue[-1].offsets if self._queue else None
        if joined is not None and len(joined) + len(offsets) <= JOINED_OFFSETS_MAX:
            joined.update(offsets)
            self._queue[-1].done.append(done)
            return
        kept = dict(offsets)
        write = _Write(lambda: self._registry.commit_offsets(self._group_id, kept), [done], kept)
        self._queue.append(write)
        self._start_next()

    def delete_offsets(self, partitions: Sequence[TopicPartition], done: Done) -> None:
        """Delete offsets."""
        self._append(lambda: self._registry.delete_offsets(self._group_id, partitions), done)

    def delete_group(self, done: Done) -> None:
        """Delete the group."""
        self._append(lambda: self._registry.delete_group(self._group_id), done)

    def expire(self, partitions: Sequence[TopicPartition], done: Callable[[bool], None]) -> None:
        """Delete expired offsets, or without `partitions` the group; `done` gets whether it did.

        A group that consumers of the paper use is kept: they commit without its coordinator.
        """
        is_deleted = False

        def delete() -> None:
            nonlocal is_deleted
            if self._registry.has_paper_consumers(self._group_id):
                return
            if partitions:
                self._registry.delete_offsets(self._group_id, partitions)
            else:
                self._registry.delete_group(self._group_id)
            is_deleted = True

        self._append(delete, lambda _: done(is_deleted))

    def call_after(self, call: Callable[[], None]) -> None:
        """Call once all writes submitted before have succeeded or failed."""
        self._append(None, lambda _: call())

    def cancel(self, reason: RequestRefused) -> None:
        """Fail the queued writes; a running write ends on its own."""
        cancelled, self._queue = self._queue, deque()
        for write in cancelled:
            for done in write.done:
                done(reason)

    def _append(self, call: Callable[[], None] | None, done: Done) -> None:
        self._queue.append(_Write(call, [done]))
        self._start_next()

    def _start_next(self) -> None:
        while self._queue and not self._is_writing:
            write = self._queue.popleft()
            if write.call is None:
                _call_done(write, None)
                continue
            self._is_writing = True
            self._on_begin()
            self._pool.submit(write.call, partial(self._finish, write))

    def _finish(self, write: _Write, result: Exception | None) -> None:
        self._is_writing = False
        failure = None if result is None else self._client_error(result)
        _call_done(write, failure)
        self._start_next()
        self._on_end(failure)

    def _client_error(self, error: Exception) -> RequestRefused:
        """Return the error for clients, which handle no registry or storage errors of a group."""
        if not isinstance(error, RequestRefused):
            log.error("write failed group=%r", self._group_id, exc_info=error)
            return CoordinatorNotAvailable("internal error")
        log.warning("write failed group=%r reason=%s", self._group_id, error)
        if isinstance(error, RegistryUnavailable | StorageFailed):
            return CoordinatorNotAvailable(str(error))
        return error


def _call_done(write: _Write, failure: RequestRefused | None) -> None:
    for done in write.done:
        done(failure)
