"""One consumer group as its coordinator serves it: state machine, offsets, storage and timer."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from logbroker.errors import GroupNotEmpty, RequestRefused
from logbroker.groups.exchanges import Commit, DescribedGroup, Effects, Request
from logbroker.groups.generations import NEVER_S
from logbroker.groups.group import Group
from logbroker.groups.states import GroupState
from logbroker.groups.stored import CommittedOffset, TopicPartition
from logbroker.server.groups.question import Question
from logbroker.server.groups.writes import Done, GroupWrites
from logbroker.server.loop import SocketLoop, Timer


class ServedGroup:
    """A group on the loop's thread.

    `offsets` are those that are durable. `on_change` hears of this group whenever something
    has happened to it. `is_suspended` asks whether time stands still for groups.
    """

    def __init__(
        self,
        group_id: str,
        group: Group,
        offsets: Mapping[TopicPartition, CommittedOffset],
        writes: GroupWrites,
        loop: SocketLoop,
        is_suspended: Callable[[], bool],
        on_change: Callable[["ServedGroup"], None],
    ) -> None:
        self.group_id = group_id
        self.offsets = dict(offsets)
        self._group = group
        self._writes = writes
        self._loop = loop
        self._is_suspended = is_suspended
        self._on_change = on_change
        self._timer: Timer | None = None
        self._set_timer()

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        return self._group.state

    @property
    def generation(self) -> int:
        """The number of the present generation."""
        return self._group.generation

    @property
    def members(self) -> int:
        """How many members the group has."""
        return self._group.members

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing is lost if it is forgotten."""
        return self._group.is_forgettable and not self.offsets and self._writes.is_idle

    def handle(self, request: Request, question: Question) -> None:
        """Take a request whose token is `question`."""
        self._apply(self._group.handle(request, self._loop.now_s))
        if not question.is_answered:
            question.wait(self._abandon)

    def describe(self) -> DescribedGroup:
        """The group as an administrator sees it."""
        return self._group.describe()

    def subscribes(self, topic: str) -> bool:
        """Whether a member reads `topic`, or may."""
        return self._group.subscribes(topic)

    def commit(
        self, commit: Commit, offsets: Mapping[TopicPartition, CommittedOffset], done: Done
    ) -> None:
        """Set offsets, seen by nobody before they are durable, if this one may."""
        refusal = self._group.commit_refusal(commit, self._loop.now_s)
        if refusal is not None:
            done(refusal)
            self._on_change(self)  # it may have been made for this request alone
            return

        def written(failure: RequestRefused | None) -> None:
            if failure is None:
                self.offsets.update(offsets)
            done(failure)

        self._writes.commit(offsets, written)

    def when_committed(self, call: Callable[[], None]) -> None:
        """Call once every commit that came before is durable, or has failed."""
        self._writes.when_done(call)

    def delete_offsets(self, places: Sequence[TopicPartition], done: Done) -> None:
        """Forget offsets; those that are not there are no error."""

        def written(failure: RequestRefused | None) -> None:
            if failure is None:
                for place in places:
                    self.offsets.pop(place, None)
            done(failure)

        self._writes.delete_offsets(places, written)

    def forget_topics(self, topics: Collection[str]) -> None:
        """Forget the offsets of topics that are gone, also those that are being committed."""

        def forget() -> None:
            places = [place for place in self.offsets if place[0] in topics]
            if places:
                self.delete_offsets(places, lambda _: None)

        self._writes.when_done(forget)

    def delete(self, done: Done) -> None:
        """Forget everything, if it has no members."""
        if self.state is not GroupState.EMPTY:
            done(GroupNotEmpty(f"group {self.group_id!r} has members"))
            return

        def written(failure: RequestRefused | None) -> None:
            if failure is None:
                self.offsets.clear()
                self._group.forget_generation()
            done(failure)

        self._writes.delete_group(written)

    def suspend(self, reason: RequestRefused) -> None:
        """Have nobody wait while this broker may not answer."""
        self._apply(self._group.turn_away(reason, self._loop.now_s))

    def resume(self, gap_s: float) -> None:
        """Go on after `gap_s` seconds for which nobody is to blame."""
        self._group.postpone(gap_s, self._loop.now_s)
        self._set_timer()

    def give_up(self, reason: RequestRefused) -> None:
        """End here: another broker looks after the group."""
        self._apply(self._group.retire(reason))
        self._writes.give_up(reason)

    def _abandon(self, question: Question) -> None:
        if self.state is not GroupState.DEAD:
            self._apply(self._group.abandon(question, self._loop.now_s))

    def _tick(self) -> None:
        self._timer = None
        if self.state is GroupState.DEAD or self._is_suspended():
            return
        self._apply(self._group.tick(self._loop.now_s))

    def _stored(self, number: int, failure: RequestRefused | None) -> None:
        if self.state is not GroupState.DEAD:
            self._apply(self._group.stored(number, failure, self._loop.now_s))

    def _apply(self, effects: Effects) -> None:
        for store in effects.stores:
            self._writes.store(store.membership, partial(self._stored, store.number))
        for token, answer in effects.answers:
            assert isinstance(token, Question)
            token.fill(answer)
        self._set_timer()
        self._on_change(self)

    def _set_timer(self) -> None:
        """Have the group looked at when it wants to be; too early does no harm."""
        due_s = NEVER_S if self.state is GroupState.DEAD else self._group.check_s
        if self._timer is not None:
            if self._timer.when_s <= due_s < NEVER_S:
                return
            self._timer.cancel()
            self._timer = None
        if due_s < NEVER_S:
            self._timer = self._loop.call_at(due_s, self._tick)
