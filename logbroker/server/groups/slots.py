"""The groups of one coordination slot, for as long as the slot is this broker's."""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from logbroker.errors import (
    CoordinatorLoading,
    NotCoordinator,
    RequestRefused,
)
from logbroker.groups.exchanges import GroupLimits
from logbroker.groups.group import Group
from logbroker.groups.stored import CommittedOffset, StoredGroup, TopicPartition
from logbroker.registry.registry import Registry
from logbroker.server.groups.served_group import ServedGroup
from logbroker.server.groups.writes import GroupWrites
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.workers import Workers

log = logging.getLogger("logbroker.groups.slots")

LOAD_RETRY_S: Final = 1.0

ORPHANS_AFTER_S: Final = 60.0
"""Offsets of a topic that is unknown so long after the slot was loaded are those of one that was
deleted while nobody had the slot, and not of one that this broker has not heard of yet."""


class Slot:
    """One slot on the loop's thread; it is ours between `begin` and `end`, and usable once loaded.

    Writes of an earlier time are waited for before a later one reads, so that none of them can
    be taken for one of the later.
    """

    def __init__(
        self,
        number: int,
        limits: GroupLimits,
        registry: Registry,
        crew: Workers,
        loop: SocketLoop,
        counters: Counters,
        *,
        is_suspended: Callable[[], bool],
        is_topic: Callable[[str], bool],
    ) -> None:
        self._number = number
        self._limits = limits
        self._registry = registry
        self._crew = crew
        self._loop = loop
        self._counters = counters
        self._is_suspended = is_suspended
        self._is_topic = is_topic
        self._tenure = 0
        """Counts the times that the slot was ours."""
        self.is_ours = False
        self._groups: dict[str, ServedGroup] | None = None
        self._open_writes = 0
        self._removed_topics: set[str] = set()
        """Topics that were deleted while the slot was being loaded."""
        self._said = ""
        """Why it could not be loaded, as it was said last."""

    @property
    def is_loading(self) -> bool:
        """Whether the slot is ours, and its groups not known yet."""
        return self.is_ours and self._groups is None

    @property
    def groups(self) -> list[ServedGroup]:
        """Every group that is known; any thread may ask."""
        return list((self._groups or {}).values())

    def find(self, group_id: str) -> ServedGroup | None:
        """The group of this name, if there is one.

        Raises:
            NotCoordinator: the slot is another broker's.
            CoordinatorLoading: the slot's groups are being read.
        """
        return self._usable().get(group_id)

    def find_or_make(self, group_id: str) -> ServedGroup:
        """The group of this name; one that is made and left empty is forgotten again.

        Raises:
            NotCoordinator, CoordinatorLoading: as above.
        """
        groups = self._usable()
        if group_id not in groups:
            groups[group_id] = self._serve(group_id, Group(self._limits), {})
        return groups[group_id]

    def begin(self) -> None:
        """The slot is ours from now on."""
        self.is_ours = True
        self._tenure += 1
        self._removed_topics = set()
        self._said = ""
        if self._open_writes == 0:
            self._load()

    def end(self, reason: RequestRefused) -> None:
        """The slot is ours no more: who waits is told `reason`."""
        self.is_ours = False
        groups, self._groups = self.groups, None
        for group in groups:
            group.give_up(reason)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget offsets of topics that are gone."""
        if self._groups is None:
            self._removed_topics.update(topics)
        for group in self.groups:
            group.forget_topics(topics)

    def _usable(self) -> dict[str, ServedGroup]:
        if self._groups is not None:
            return self._groups
        if self.is_ours:
            raise CoordinatorLoading(f"coordination slot {self._number} is being loaded")
        raise NotCoordinator(f"coordination slot {self._number} is another broker's")

    def _load(self) -> None:
        tenure = self._tenure
        self._crew.run(
            lambda: self._registry.load_groups(self._number),
            lambda result: self._loaded(tenure, result),
        )

    def _loaded(self, tenure: int, result: list[StoredGroup] | Exception) -> None:
        if tenure != self._tenure or not self.is_ours:
            return
        if isinstance(result, Exception):
            self._retry(tenure, result)
            return
        now_s = self._loop.now_s
        self._groups = {}
        for stored in result:
            membership = stored.membership
            group = (
                Group(self._limits)
                if membership is None
                else Group.restored(self._limits, membership, now_s)
            )
            self._groups[stored.group_id] = self._serve(stored.group_id, group, stored.offsets)
        if self._groups:
            log.info("loaded slot=%d groups=%d", self._number, len(self._groups))
        if self._removed_topics:
            self.forget_topics(self._removed_topics)
        self._loop.call_at(now_s + ORPHANS_AFTER_S, lambda: self._forget_orphans(tenure))

    def _retry(self, tenure: int, error: Exception) -> None:
        if not isinstance(error, RequestRefused):
            raise error
        if str(error) != self._said:
            self._said = str(error)
            log.warning("cannot load slot=%d reason=%s", self._number, error)

        def again() -> None:
            if tenure == self._tenure and self.is_ours:
                self._load()

        self._loop.call_at(self._loop.now_s + LOAD_RETRY_S, again)

    def _forget_orphans(self, tenure: int) -> None:
        if tenure != self._tenure or self._is_suspended():
            return
        for group in self.groups:
            orphans = {topic for topic, _ in group.offsets if not self._is_topic(topic)}
            if orphans:
                log.info("forgets offsets group=%r topics=%s", group.group_id, sorted(orphans))
                group.forget_topics(orphans)

    def _serve(
        self, group_id: str, group: Group, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> ServedGroup:
        tenure, counted = self._tenure, group.generation

        def changed(served: ServedGroup) -> None:
            nonlocal counted
            self._counters.group_rebalances += max(0, served.generation - counted)
            counted = served.generation
            self._forget_if_nothing(served)

        def written(failure: RequestRefused | None) -> None:
            self._forget_if_nothing(served)
            self._write_ended(tenure, failure)

        writes = GroupWrites(group_id, self._registry, self._crew, self._write_begun, written)
        served = ServedGroup(
            group_id, group, offsets, writes, self._loop, self._is_suspended, changed
        )
        return served

    def _forget_if_nothing(self, served: ServedGroup) -> None:
        groups = self._groups or {}
        if served.is_forgettable and groups.get(served.group_id) is served:
            del groups[served.group_id]

    def _write_begun(self) -> None:
        self._open_writes += 1

    def _write_ended(self, tenure: int, failure: RequestRefused | None) -> None:
        self._open_writes -= 1
        is_known = tenure == self._tenure and self._groups is not None
        if is_known and isinstance(failure, NotCoordinator):
            # Somebody else had the slot meanwhile: what is known here may be out of date.
            self.end(failure)
            self.begin()
        elif self._open_writes == 0 and self.is_loading:
            self._load()
