"""The coordinator of this broker's consumer groups: the one door to them.

A slot is ours while the cluster's view says so; and nothing is answered about its groups while
this broker's session may have ended without its knowledge, when another may have the slot.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from logbroker.config import BrokerConfig
from logbroker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidGroupId,
    NotCoordinator,
    RebalanceInProgress,
    RequestRefused,
    UnknownGroup,
)
from logbroker.groups.exchanges import (
    Alive,
    Commit,
    DescribedGroup,
    ErrorResponse,
    GroupLimits,
    Heartbeat,
    Request,
    Sync,
)
from logbroker.groups.states import GroupState
from logbroker.groups.stored import CommittedOffset, TopicPartition
from logbroker.registry.cluster import COORDINATION_SLOTS, ClusterView, coordination_slot
from logbroker.registry.registry import Registry
from logbroker.server.groups.question import Question
from logbroker.server.groups.served_group import ServedGroup
from logbroker.server.groups.slots import Slot
from logbroker.server.groups.writes import Done
from logbroker.server.known_topics import KnownTopics
from logbroker.server.loop import SocketLoop
from logbroker.server.metrics.counters import Counters
from logbroker.server.registry_crew import CLOSE_S
from logbroker.server.workers import Workers

log = logging.getLogger("logbroker.groups.coordinator")

GROUP_ID_CHARS_MAX: Final = 255

CREW_THREADS: Final = 4
"""Groups whose writes run at the same time; ZooKeeper takes a few milliseconds for each."""

LEASE_CHECK_S: Final = 0.5

GAP_S: Final = 2.0
"""So long without a positive check, and members were refused, or not heard, for a while."""

SILENCE: Final = "ZooKeeper was not heard of for too long"

Offsets = Mapping[TopicPartition, CommittedOffset]


class GroupCoordinator:
    """Every group of this broker's slots, on the loop's thread.

    Methods that name a group raise, or tell whom they were given:
        InvalidGroupId: the name is empty or too long.
        CoordinatorNotAvailable: ZooKeeper was not heard of for too long.
        NotCoordinator: the group is another broker's.
        CoordinatorLoading: its groups are being read.
    """

    def __init__(
        self,
        config: BrokerConfig,
        registry: Registry,
        loop: SocketLoop,
        counters: Counters,
        view: ClusterView,
    ) -> None:
        self._broker_id = config.broker_id
        self._registry = registry
        self._loop = loop
        self._view = view
        self._topics = KnownTopics(view)
        self._crew = Workers(loop, "groups", CREW_THREADS)
        self._is_allowed = True
        self._allowed_s = time.monotonic()
        """When the groups were last found to be ours to answer for."""
        limits = GroupLimits(
            initial_rebalance_delay_s=config.group_initial_rebalance_delay_ms / 1000,
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
        )
        self._slots = [
            Slot(
                number,
                limits,
                registry,
                self._crew,
                loop,
                counters,
                is_suspended=self._is_suspended,
                is_topic=lambda name: name in self._view.topics or name in self._view.unreadable,
            )
            for number in range(COORDINATION_SLOTS)
        ]

    def start(self) -> None:
        """Notice from now on, even while nobody asks, when nothing may be answered."""
        self._loop.call_every(LEASE_CHECK_S, self._note_lease)

    def follow(self, view: ClusterView) -> None:
        """Take up and give up slots, and forget the offsets of topics that are gone."""
        before, self._view = self._view, view
        is_alive, changed = self._broker_id in view.brokers, False
        for number, slot in enumerate(self._slots):
            is_ours = is_alive and view.coordinators.get(number) == self._broker_id
            if slot.is_ours and not is_ours:
                slot.end(NotCoordinator("another broker looks after the group"))
                changed = True
            elif is_ours and not slot.is_ours:
                slot.begin()
                changed = True
        if changed:
            ours = [number for number, slot in enumerate(self._slots) if slot.is_ours]
            log.info("coordinates slots=%s", ours)
        if view.topics is not before.topics or view.unreadable != before.unreadable:
            gone = {topic.name for topic in self._topics.follow(view)}
            for slot in self._slots if gone else ():
                slot.forget_topics(gone)

    def close(self) -> None:
        """Let the writes that have begun end, if they do so soon; who waits is turned away."""
        for slot in self._slots:
            slot.end(NotCoordinator("this broker stops"))
        self._crew.abandon(CLOSE_S)

    def group_sizes(self) -> list[tuple[GroupState, int]]:
        """The state and the number of members of each group; any thread may ask."""
        return [(group.state, group.members) for group in self._all_groups()]

    def ask(self, group_id: str, request: Request, question: Question) -> None:
        """Hand a member's request, whose token is `question`, to its group."""
        try:
            group = self._slot(group_id).find_or_make(group_id)
        except CoordinatorLoading as loading:
            # Kafka's way: older clients do not expect to hear of loading here.
            if isinstance(request, Heartbeat):
                question.fill(Alive())
            elif isinstance(request, Sync):
                question.fill(ErrorResponse(RebalanceInProgress(str(loading))))
            else:
                question.fill(ErrorResponse(loading))
        except RequestRefused as refusal:
            question.fill(ErrorResponse(refusal))
        else:
            group.handle(request, question)

    def commit(self, group_id: str, commit: Commit, offsets: Offsets, done: Done) -> None:
        """Set offsets; `done` hears when they are durable, or why they may not be."""
        try:
            group = self._slot(group_id).find_or_make(group_id)
        except RequestRefused as refusal:
            done(refusal)
        else:
            group.commit(commit, offsets, done)

    def fetch_offsets(
        self, group_id: str, found: Callable[[Offsets | RequestRefused], None]
    ) -> None:
        """Every durable offset of a group, all that were committed before this among them."""

        def committed() -> None:
            try:
                self._check_lease()
            except RequestRefused as refusal:
                found(refusal)
            else:
                found(group.offsets if group is not None else {})

        try:
            group = self._slot(group_id).find(group_id)
        except RequestRefused as refusal:
            found(refusal)
            return
        if group is None:
            found({})
        else:
            group.when_committed(committed)

    def delete_offsets(self, group_id: str, places: Sequence[TopicPartition], done: Done) -> None:
        """Forget offsets of a group; UnknownGroup where there is none."""
        try:
            group = self.get(group_id)
        except RequestRefused as refusal:
            done(refusal)
        else:
            group.delete_offsets(places, done)

    def delete(self, group_id: str, done: Done) -> None:
        """Forget a group; UnknownGroup where there is none, GroupNotEmpty where it has members."""
        try:
            group = self.get(group_id)
        except RequestRefused as refusal:
            done(refusal)
        else:
            group.delete(done)

    def get(self, group_id: str) -> ServedGroup:
        """A group.

        Raises:
            UnknownGroup: there is none of this name.
        """
        group = self._slot(group_id).find(group_id)
        if group is None:
            raise UnknownGroup(f"there is no group {group_id!r}")
        return group

    def describe_all(self) -> tuple[dict[str, DescribedGroup], RequestRefused | None]:
        """Every group of this broker by name, and why some may be missing."""
        try:
            self._check_lease()
        except RequestRefused as refusal:
            return {}, refusal
        groups = {group.group_id: group.describe() for group in self._all_groups()}
        if any(slot.is_loading for slot in self._slots):
            return groups, CoordinatorLoading("some groups are being loaded")
        return groups, None

    def _slot(self, group_id: str) -> Slot:
        if not 1 <= len(group_id) <= GROUP_ID_CHARS_MAX:
            raise InvalidGroupId(
                f"group name of {len(group_id)} characters; allowed is 1 to {GROUP_ID_CHARS_MAX}"
            )
        slot = self._slots[coordination_slot(group_id)]
        if slot.is_ours:
            self._check_lease()
        return slot

    def _check_lease(self) -> None:
        if self._is_suspended():
            raise CoordinatorNotAvailable(SILENCE)

    def _is_suspended(self) -> bool:
        """Whether nothing may be answered now."""
        self._note_lease()
        return not self._is_allowed

    def _note_lease(self) -> None:
        """Find out whether groups may be answered for; who waits is turned away when it ends.

        Afterwards members are given as much time as they were refused, and so they are after a
        pause of the whole process.
        """
        now_s = time.monotonic()  # the turn may have begun before a pause
        if not self._registry.may_coordinate():
            if self._is_allowed:
                self._is_allowed = False
                log.warning("suspends groups reason=%s", SILENCE)
                for group in self._all_groups():
                    group.suspend(CoordinatorNotAvailable(SILENCE))
            return
        gap_s = now_s - self._allowed_s
        self._allowed_s = now_s
        self._is_allowed = True
        if gap_s > GAP_S:
            log.warning("resumes groups after seconds=%.1f", gap_s)
            for group in self._all_groups():
                group.resume(gap_s)

    def _all_groups(self) -> list[ServedGroup]:
        return [group for slot in self._slots for group in slot.groups]
