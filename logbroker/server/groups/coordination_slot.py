"""The groups of one coordination slot, while this broker owns the slot."""

import logging
from collections.abc import Callable, Collection
from typing import Final

from logbroker.errors import (
    CoordinatorLoading,
    NotCoordinator,
    RequestRefused,
)
from logbroker.groups.group import Group
from logbroker.groups.messages import GroupLimits
from logbroker.groups.stored import StoredGroup
from logbroker.registry.registry import Registry
from logbroker.server.groups.coordinated_group import CoordinatedGroup
from logbroker.server.groups.writes import GroupWrites
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.worker_pool import WorkerPool

log = logging.getLogger("logbroker.groups.slots")

LOAD_RETRY_S: Final = 1.0

ORPHANS_AFTER_S: Final = 60.0
"""Offsets of topics that are unknown this long after the load are deleted: the topics were deleted
while no broker owned the slot. A new topic would be known to this broker by then."""


class CoordinationSlot:
    """A slot on the loop's thread, owned between `acquire` and `resign`, usable once loaded.

    The slot is loaded after the writes of its previous ownership have ended, so that none of
    them changes what was read.
    """

    def __init__(
        self,
        number: int,
        limits: GroupLimits,
        registry: Registry,
        pool: WorkerPool,
        loop: SocketLoop,
        counters: Counters,
        *,
        is_suspended: Callable[[], bool],
        is_topic: Callable[[str], bool],
    ) -> None:
        self._number = number
        self._limits = limits
        self._registry = registry
        self._pool = pool
        self._loop = loop
        self._counters = counters
        self._is_suspended = is_suspended
        self._is_topic = is_topic
        self._ownership = 0
        """The number of times that this broker acquired the slot."""
        self.is_owned = False
        self._groups: dict[str, CoordinatedGroup] | None = None
        self._running_writes = 0
        self._removed_topics: set[str] = set()
        """Topics that were deleted during the load of the slot."""
        self._load_failure = ""
        """The last logged reason of a failed load."""

    @property
    def is_loading(self) -> bool:
        """Whether the slot is owned and its groups are not loaded yet."""
        return self.is_owned and self._groups is None

    @property
    def groups(self) -> list[CoordinatedGroup]:
        """All loaded groups; safe on any thread."""
        return list((self._groups or {}).values())

    def find(self, group_id: str) -> CoordinatedGroup | None:
        """Return the group, if it exists.

        Raises:
            NotCoordinator: another broker owns the slot.
            CoordinatorLoading: the groups are being loaded.
        """
        return self._loaded_groups().get(group_id)

    def get_or_create(self, group_id: str) -> CoordinatedGroup:
        """Return the group, created if missing; it is removed again if it stays empty.

        Raises:
            NotCoordinator, CoordinatorLoading: as in `find`.
        """
        groups = self._loaded_groups()
        if group_id not in groups:
            groups[group_id] = self._create(StoredGroup(group_id, None, {}))
        return groups[group_id]

    def acquire(self) -> None:
        """Own the slot and load its groups."""
        self.is_owned = True
        self._ownership += 1
        self._removed_topics = set()
        self._load_failure = ""
        if self._running_writes == 0:
            self._load()

    def resign(self, reason: RequestRefused) -> None:
        """Stop owning the slot; delayed requests fail with `reason`."""
        self.is_owned = False
        groups, self._groups = self.groups, None
        for group in groups:
            group.close(reason)

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete the offsets of deleted topics."""
        if self._groups is None:
            self._removed_topics.update(topics)
        for group in self.groups:
            group.delete_topics(topics)

    def expire_offsets(self, before_ms: int) -> None:
        """Delete the offsets and groups that expired at `before_ms`."""
        for group in self.groups:
            group.expire_offsets(before_ms)

    def _loaded_groups(self) -> dict[str, CoordinatedGroup]:
        if self._groups is not None:
            return self._groups
        if self.is_owned:
            raise CoordinatorLoading(f"coordination slot {self._number} is being loaded")
        raise NotCoordinator(f"another broker owns coordination slot {self._number}")

    def _load(self) -> None:
        ownership = self._ownership
        self._pool.submit(
            lambda: self._registry.load_groups(self._number),
            lambda result: self._finish_load(ownership, result),
        )

    def _finish_load(self, ownership: int, result: list[StoredGroup] | Exception) -> None:
        if ownership != self._ownership or not self.is_owned:
            return
        if isinstance(result, Exception):
            self._retry_load(ownership, result)
            return
        now_s = self._loop.now_s
        self._groups = {stored.group_id: self._create(stored) for stored in result}
        if self._groups:
            log.info("loaded slot=%d groups=%d", self._number, len(self._groups))
        if self._removed_topics:
            self.delete_topics(self._removed_topics)
        self._loop.call_at(now_s + ORPHANS_AFTER_S, lambda: self._delete_orphans(ownership))

    def _retry_load(self, ownership: int, error: Exception) -> None:
        if not isinstance(error, RequestRefused):
            raise error
        if str(error) != self._load_failure:
            self._load_failure = str(error)
            log.warning("cannot load slot=%d reason=%s", self._number, error)

        def again() -> None:
            if ownership == self._ownership and self.is_owned:
                self._load()

        self._loop.call_at(self._loop.now_s + LOAD_RETRY_S, again)

    def _delete_orphans(self, ownership: int) -> None:
        if ownership != self._ownership or self._is_suspended():
            return
        for group in self.groups:
            orphans = {topic for topic, _ in group.offsets if not self._is_topic(topic)}
            if orphans:
                log.info(
                    "deleting offsets of deleted topics group=%r topics=%s",
                    group.group_id,
                    sorted(orphans),
                )
                group.delete_topics(orphans)

    def _create(self, stored: StoredGroup) -> CoordinatedGroup:
        group = (
            Group(self._limits)
            if stored.membership is None
            else Group.restored(self._limits, stored.membership, self._loop.now_s)
        )
        ownership, counted = self._ownership, group.generation

        def changed(coordinated: CoordinatedGroup) -> None:
            nonlocal counted
            self._counters.group_rebalances += max(0, coordinated.generation - counted)
            counted = coordinated.generation
            self._remove_if_empty(coordinated)

        def written(failure: RequestRefused | None) -> None:
            self._remove_if_empty(coordinated)
            self._end_write(ownership, failure)

        writes = GroupWrites(
            stored.group_id, self._registry, self._pool, self._begin_write, written
        )
        coordinated = CoordinatedGroup(
            stored, group, writes, self._loop, self._is_suspended, changed
        )
        return coordinated

    def _remove_if_empty(self, coordinated: CoordinatedGroup) -> None:
        groups = self._groups or {}
        if coordinated.is_forgettable and groups.get(coordinated.group_id) is coordinated:
            del groups[coordinated.group_id]

    def _begin_write(self) -> None:
        self._running_writes += 1

    def _end_write(self, ownership: int, failure: RequestRefused | None) -> None:
        self._running_writes -= 1
        is_loaded = ownership == self._ownership and self._groups is not None
        if is_loaded and isinstance(failure, NotCoordinator):
            # Another broker owned the slot meanwhile: the loaded groups may be outdated.
            self.resign(failure)
            self.acquire()
        elif self._running_writes == 0 and self.is_loading:
            self._load()
