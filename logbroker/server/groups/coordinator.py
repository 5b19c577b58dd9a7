"""The group coordinator of this broker.

The cluster's view assigns coordination slots to brokers. While the broker's ZooKeeper session may
have expired, another broker may own its slots, so requests about groups are rejected.
"""

import itertools
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from logbroker.config import MINUTE_MS, BrokerConfig
from logbroker.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidGroupId,
    NotCoordinator,
    RebalanceInProgress,
    RequestRefused,
    UnknownGroup,
)
from logbroker.groups.messages import (
    Alive,
    Commit,
    ErrorResponse,
    GroupLimits,
    GroupSummary,
    Heartbeat,
    Request,
    Sync,
)
from logbroker.groups.states import GroupState
from logbroker.groups.stored import CommittedOffset, TopicPartition
from logbroker.registry.cluster import COORDINATION_SLOTS, ClusterView, coordination_slot
from logbroker.registry.registry import Registry
from logbroker.server.groups.coordinated_group import CoordinatedGroup, DelayedGroupRequest
from logbroker.server.groups.coordination_slot import CoordinationSlot
from logbroker.server.groups.writes import Done
from logbroker.server.loop import SocketLoop
from logbroker.server.membership import KnownTopics
from logbroker.server.metrics.counters import Counters
from logbroker.server.registry_thread import CLOSE_TIMEOUT_S
from logbroker.server.worker_pool import WorkerPool

log = logging.getLogger("logbroker.groups.coordinator")

GROUP_ID_CHARS_MAX: Final = 255

WRITE_THREADS: Final = 4
"""The number of concurrent writes; one takes a few milliseconds in ZooKeeper."""

SESSION_CHECK_S: Final = 1.0
"""Every request of a group checks the session as well. Half of `GAP_S`, so that a check that is
late is not taken for a pause of the process."""

EXPIRY_CHECK_S: Final = 600.0
"""The interval of checks for expired offsets: Kafka's `offsets.retention.check.interval.ms`."""

GAP_S: Final = 2.0
"""After this long without a confirmed session, the timeouts of members are extended."""

SESSION_UNCONFIRMED: Final = "the ZooKeeper session is not confirmed"

Offsets = Mapping[TopicPartition, CommittedOffset]


def check_has_name(group_id: str) -> None:
    """Reject the empty group id, which only commits, fetches and administers offsets, as in Kafka.

    Raises:
        InvalidGroupId: the id is empty.
    """
    if not group_id:
        raise InvalidGroupId("the group id is empty; allowed only for commits and fetches")


class GroupCoordinator:
    """The groups of this broker's slots, on the loop's thread.

    Methods with a group id raise these errors, or pass them to their callback:
        InvalidGroupId: the id is too long, or empty where a group must have a name.
        CoordinatorNotAvailable: the ZooKeeper session is not confirmed.
        NotCoordinator: another broker coordinates the group.
        CoordinatorLoading: the groups are being loaded.
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
        self._offsets_retention_ms = config.offsets_retention_minutes * MINUTE_MS
        self._pool = WorkerPool(loop, "groups", WRITE_THREADS)
        self._is_confirmed = True
        self._confirmed_s = time.monotonic()
        """The time of the last check that confirmed the session."""
        limits = GroupLimits(
            initial_rebalance_delay_s=config.group_initial_rebalance_delay_ms / 1000,
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
        )
        self._slots = [
            CoordinationSlot(
                number,
                limits,
                registry,
                self._pool,
                loop,
                counters,
                is_suspended=self._is_suspended,
                is_topic=lambda name: name in self._view.topics or name in self._view.unreadable,
            )
            for number in range(COORDINATION_SLOTS)
        ]

    def start(self) -> None:
        """Check the session periodically, also without requests, and expire offsets."""
        self._loop.call_every(SESSION_CHECK_S, self._check_session)
        # One slot at a time: all groups together would hold the loop for long.
        slots = itertools.cycle(self._slots)
        self._loop.call_every(
            EXPIRY_CHECK_S / COORDINATION_SLOTS, lambda: self._expire_offsets(next(slots))
        )

    def apply_view(self, view: ClusterView) -> None:
        """Acquire and resign slots, and delete the offsets of deleted topics."""
        before, self._view = self._view, view
        is_alive, changed = self._broker_id in view.brokers, False
        for number, slot in enumerate(self._slots):
            is_owner = is_alive and view.coordinators.get(number) == self._broker_id
            if slot.is_owned and not is_owner:
                slot.resign(NotCoordinator("another broker coordinates the group"))
                changed = True
            elif is_owner and not slot.is_owned:
                slot.acquire()
                changed = True
        if changed:
            owned = [number for number, slot in enumerate(self._slots) if slot.is_owned]
            log.info("coordinating slots=%s", owned)
        if view.topics is not before.topics or view.unreadable != before.unreadable:
            deleted = {topic.name for topic in self._topics.update(view)}
            for slot in self._slots if deleted else ():
                slot.delete_topics(deleted)

    def close(self) -> None:
        """Reject delayed requests and wait briefly for the running writes."""
        for slot in self._slots:
            slot.resign(NotCoordinator("this broker is shutting down"))
        self._pool.abandon(CLOSE_TIMEOUT_S)

    def group_sizes(self) -> list[tuple[GroupState, int]]:
        """Return the state and the number of members of each group; safe on any thread."""
        return [(group.state, group.members) for group in self._all_groups()]

    def handle(self, group_id: str, request: Request, delayed: DelayedGroupRequest) -> None:
        """Pass a member's request, whose token is `delayed`, to its group."""
        try:
            check_has_name(group_id)
            group = self._slot(group_id).get_or_create(group_id)
        except CoordinatorLoading as loading:
            # As in Kafka: older clients do not handle COORDINATOR_LOAD_IN_PROGRESS here.
            if isinstance(request, Heartbeat):
                delayed.complete(Alive())
            elif isinstance(request, Sync):
                delayed.complete(ErrorResponse(RebalanceInProgress(str(loading))))
            else:
                delayed.complete(ErrorResponse(loading))
        except RequestRefused as refusal:
            delayed.complete(ErrorResponse(refusal))
        else:
            group.handle(request, delayed)

    def commit(self, group_id: str, commit: Commit, offsets: Offsets, done: Done) -> None:
        """Commit offsets; `done` is called when they are durable or the commit failed."""
        try:
            group = self._slot(group_id).get_or_create(group_id)
        except RequestRefused as refusal:
            done(refusal)
        else:
            group.commit(commit, offsets, done)

    def fetch_offsets(
        self, group_id: str, found: Callable[[Offsets | RequestRefused], None]
    ) -> None:
        """Return the durable offsets of a group, including all earlier commits."""

        def committed() -> None:
            try:
                self._require_session()
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
            group.call_after_commits(committed)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], done: Done
    ) -> None:
        """Delete offsets of a group; UnknownGroup if it does not exist."""
        try:
            group = self.get(group_id)
        except RequestRefused as refusal:
            done(refusal)
        else:
            group.delete_offsets(partitions, done)

    def delete(self, group_id: str, done: Done) -> None:
        """Delete a group; UnknownGroup if it does not exist, GroupNotEmpty if it has members."""
        try:
            group = self.get(group_id)
        except RequestRefused as refusal:
            done(refusal)
        else:
            group.delete(done)

    def get(self, group_id: str) -> CoordinatedGroup:
        """Return a group.

        Raises:
            UnknownGroup: it does not exist.
        """
        group = self._slot(group_id).find(group_id)
        if group is None:
            raise UnknownGroup(f"group {group_id!r} does not exist")
        return group

    def list_all(self) -> tuple[list[GroupSummary], RequestRefused | None]:
        """Return the groups of this broker, and the error if some may be missing."""
        try:
            self._require_session()
        except RequestRefused as refusal:
            return [], refusal
        groups = [group.summary for group in self._all_groups()]
        if any(slot.is_loading for slot in self._slots):
            return groups, CoordinatorLoading("some groups are being loaded")
        return groups, None

    def _slot(self, group_id: str) -> CoordinationSlot:
        if len(group_id) > GROUP_ID_CHARS_MAX:
            raise InvalidGroupId(
                f"group id has {len(group_id)} characters; allowed: up to {GROUP_ID_CHARS_MAX}"
            )
        slot = self._slots[coordination_slot(group_id)]
        if slot.is_owned:
            self._require_session()
        return slot

    def _expire_offsets(self, slot: CoordinationSlot) -> None:
        if not self._is_suspended():
            slot.expire_offsets(self._loop.now_ms - self._offsets_retention_ms)

    def _require_session(self) -> None:
        if self._is_suspended():
            raise CoordinatorNotAvailable(SESSION_UNCONFIRMED)

    def _is_suspended(self) -> bool:
        self._check_session()
        return not self._is_confirmed

    def _check_session(self) -> None:
        """Suspend all groups if the session is not confirmed; resume them when it is again.

        The timeouts of members are extended by the suspension, or by a pause of the process.
        """
        now_s = time.monotonic()  # the turn may have begun before a pause
        if not self._registry.may_coordinate():
            if self._is_confirmed:
                self._is_confirmed = False
                log.warning("suspending groups reason=%s", SESSION_UNCONFIRMED)
                for group in self._all_groups():
                    group.suspend(CoordinatorNotAvailable(SESSION_UNCONFIRMED))
            return
        gap_s = now_s - self._confirmed_s
        self._confirmed_s = now_s
        self._is_confirmed = True
        if gap_s > GAP_S:
            log.warning("resuming groups after seconds=%.1f", gap_s)
            for group in self._all_groups():
                group.resume(gap_s)

    def _all_groups(self) -> list[CoordinatedGroup]:
        return [group for slot in self._slots for group in slot.groups]
