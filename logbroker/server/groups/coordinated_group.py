"""One consumer group at its coordinator: state machine, offsets, storage and timer."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from logbroker.errors import GroupNotEmpty, RequestRefused
from logbroker.groups.generations import NEVER_S
from logbroker.groups.group import Group
from logbroker.groups.messages import (
    Answer,
    Commit,
    DescribedGroup,
    Effects,
    GroupSummary,
    Request,
)
from logbroker.groups.states import GroupState
from logbroker.groups.stored import CommittedOffset, StoredGroup, TopicPartition
from logbroker.server.connection import Connection
from logbroker.server.groups.writes import Done, GroupWrites
from logbroker.server.loop import SocketLoop, Timer

log = logging.getLogger("logbroker.groups")


class DelayedGroupRequest:
    """A request of a group member, which the group uses as token of its response."""

    __slots__ = ("_connection", "_on_abandon", "_respond", "is_complete")

    def __init__(self, connection: Connection, respond: Callable[[Answer], None]) -> None:
        self.is_complete = False
        self._connection = connection
        self._respond = respond
        self._on_abandon: Callable[[DelayedGroupRequest], None] | None = None

    def delay(self, on_abandon: Callable[["DelayedGroupRequest"], None]) -> None:
        """Wait for a later response; `on_abandon` is called if the connection closes first."""
        self._on_abandon = on_abandon
        self._connection.delayed.add(self)

    def complete(self, answer: Answer) -> None:
        """Send the response, once."""
        assert not self.is_complete, "a request is completed once"
        self.is_complete = True
        self._connection.delayed.discard(self)
        self._respond(answer)

    def abandon(self) -> None:
        """Notify the group that the connection is closed."""
        if self._on_abandon is not None and not self.is_complete:
            self._on_abandon(self)


class CoordinatedGroup:
    """A group on the loop's thread.

    `offsets` are the durable ones. `on_change` is called after every event of the group.
    `is_suspended` returns whether timeouts of groups are paused.
    """

    def __init__(
        self,
        stored: StoredGroup,
        group: Group,
        writes: GroupWrites,
        loop: SocketLoop,
        is_suspended: Callable[[], bool],
        on_change: Callable[["CoordinatedGroup"], None],
    ) -> None:
        self.group_id = stored.group_id
        self.offsets = dict(stored.offsets)
        self._emptied_ms = stored.emptied_ms
        self._group = group
        self._writes = writes
        self._loop = loop
        self._is_suspended = is_suspended
        self._on_change = on_change
        self._timer: Timer | None = None
        self._set_timer()

    @property
    def state(self) -> GroupState:
        """The state of the group."""
        return self._group.state

    @property
    def generation(self) -> int:
        """The current generation."""
        return self._group.generation

    @property
    def members(self) -> int:
        """The number of members."""
        return self._group.members

    @property
    def is_forgettable(self) -> bool:
        """Whether the group holds no state and can be removed."""
        return self._group.has_no_state and not self.offsets and self._writes.is_idle

    def handle(self, request: Request, delayed: DelayedGroupRequest) -> None:
        """Handle a request whose token is `delayed`."""
        self._apply(self._group.handle(request, self._loop.now_s))
        if not delayed.is_complete:
            delayed.delay(self._abandon)

    @property
    def summary(self) -> GroupSummary:
        """The group as shown in a list."""
        return GroupSummary(self.group_id, self._group.state, self._group.protocol_type)

    def describe(self) -> DescribedGroup:
        """Return the group for DescribeGroups."""
        return self._group.describe()

    def subscribes(self, topic: str) -> bool:
        """Return whether a member is, or may be, subscribed to `topic`."""
        return self._group.may_subscribe(topic)

    def commit(
        self, commit: Commit, offsets: Mapping[TopicPartition, CommittedOffset], done: Done
    ) -> None:
        """Commit offsets if allowed; they are visible once they are durable."""
        refusal = self._group.check_commit(commit, self._loop.now_s)
        if refusal is not None:
            done(refusal)
            self._on_change(self)  # it may have been created for this request only
            return

        def written(failure: RequestRefused | None) -> None:
            if failure is None:
                self.offsets.update(offsets)
            done(failure)

        self._writes.commit(offsets, written)

    def call_after_commits(self, call: Callable[[], None]) -> None:
        """Call once all earlier commits are durable or have failed."""
        self._writes.call_after(call)

    def delete_offsets(self, partitions: Sequence[TopicPartition], done: Done) -> None:
        """Delete offsets; missing ones are ignored."""

        def written(failure: RequestRefused | None) -> None:
            if failure is None:
                for key in partitions:
                    self.offsets.pop(key, None)
            done(failure)

        self._writes.delete_offsets(partitions, written)

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete the offsets of deleted topics, including those being committed."""

        def delete() -> None:
            partitions = [key for key in self.offsets if key[0] in topics]
            if partitions:
                self.delete_offsets(partitions, lambda _: None)

        self._writes.call_after(delete)

    def delete(self, done: Done) -> None:
        """Delete the group if it has no members."""
        if self.state is not GroupState.EMPTY:
            done(GroupNotEmpty(f"group {self.group_id!r} has members"))
            return

        def written(failure: RequestRefused | None) -> None:
            if failure is None:
                self.offsets.clear()
                self._group.reset_generation()
            done(failure)

        self._writes.delete_group(written)

    def expire_offsets(self, before_ms: int) -> None:
        """Delete the offsets that expired at `before_ms`, or the group if no others are left."""
        if not self._writes.is_idle:
            return  # what is being committed does not expire
        expired = self._group.expired_offsets(self.offsets, self._emptied_ms, before_ms)
        if self.state is GroupState.EMPTY and len(expired) == len(self.offsets):
            if expired or self.generation > 0:
                self._writes.expire((), self._remove_all)
        elif expired:
            self._writes.expire(expired, partial(self._remove_expired, expired))

    def _remove_expired(self, expired: Sequence[TopicPartition], is_deleted: bool) -> None:
        if is_deleted:
            for place in expired:
                self.offsets.pop(place, None)
            log.info("offsets expired group=%r partitions=%d", self.group_id, len(expired))

    def _remove_all(self, is_deleted: bool) -> None:
        if is_deleted:
            log.info("group expired group=%r partitions=%d", self.group_id, len(self.offsets))
            self.offsets.clear()
            self._group.reset_generation()

    def suspend(self, reason: RequestRefused) -> None:
        """Reject the delayed requests while this broker may not respond."""
        self._apply(self._group.reject_waiting(reason, self._loop.now_s))

    def resume(self, gap_s: float) -> None:
        """Extend all timeouts by `gap_s`, the seconds of suspension."""
        self._group.extend_deadlines(gap_s, self._loop.now_s)
        self._set_timer()

    def close(self, reason: RequestRefused) -> None:
        """Reject all requests: another broker coordinates the group."""
        self._apply(self._group.retire(reason))
        self._writes.cancel(reason)

    def _abandon(self, delayed: DelayedGroupRequest) -> None:
        if self.state is not GroupState.DEAD:
            self._apply(self._group.drop_waiting_request(delayed, self._loop.now_s))

    def _tick(self) -> None:
        self._timer = None
        if self.state is GroupState.DEAD or self._is_suspended():
            return
        self._apply(self._group.expire_members(self._loop.now_s))

    def _stored(self, number: int, failure: RequestRefused | None) -> None:
        if self.state is not GroupState.DEAD:
            self._apply(self._group.complete_write(number, failure, self._loop.now_s))

    def _apply(self, effects: Effects) -> None:
        for store in effects.stores:
            membership = replace(store.membership, stored_ms=self._loop.now_ms)
            if not membership.members:
                self._emptied_ms = membership.stored_ms
            self._writes.store(membership, partial(self._stored, store.number))
        for token, answer in effects.answers:
            assert isinstance(token, DelayedGroupRequest)
            token.complete(answer)
        self._set_timer()
        self._on_change(self)

    def _set_timer(self) -> None:
        """Schedule the next tick of the group; an early tick has no effect."""
        due_s = NEVER_S if self.state is GroupState.DEAD else self._group.next_check_s
        if self._timer is not None:
            if self._timer.when_s <= due_s < NEVER_S:
                return
            self._timer.cancel()
            self._timer = None
        if due_s < NEVER_S:
            self._timer = self._loop.call_at(due_s, self._tick)
