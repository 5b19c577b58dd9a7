from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from logbroker.consumer.rebalance.assignment import GroupView, thread_of
from logbroker.consumer.rebalance.rebalancer import (
    Claim,
    ReadRegistries,
    Rebalancer,
    Register,
    Release,
    StartStreams,
    Wait,
)
from tests.support.property_examples import examples
from tests.unit.logbroker.consumer.simulated_group import (
    BACKOFF_S,
    SESSION_S,
    Registries,
    SimulatedConsumer,
)

TOPICS = ("clicks", "views")
CONSUMERS_MAX = 5

which = st.integers(0, CONSUMERS_MAX - 1)


class GroupMachine(RuleBasedStateMachine):
    """Consumers join, leave, freeze, lose connections and sessions, in any order and at any pace.

    A consumer that no rule touches for a while is a frozen process; its session may then end.
    """

    @initialize(counts=st.lists(st.integers(1, 5), min_size=len(TOPICS), max_size=len(TOPICS)))
    def start(self, counts: list[int]) -> None:
        self.world = Registries(dict(zip(TOPICS, counts, strict=True)))
        self.consumers: list[SimulatedConsumer] = []
        self.joined = 0

    @rule(streams=st.fixed_dictionaries({}, optional={t: st.integers(1, 3) for t in TOPICS}))
    def join(self, streams: dict[str, int]) -> None:
        if len(self.consumers) < CONSUMERS_MAX and streams:
            # Names that sort in another order than they came.
            name = f"{self.joined * 7 % 10}-{self.joined}"
            self.joined += 1
            self.consumers.append(SimulatedConsumer(self.world, name, streams))

    @rule(index=which)
    def leave(self, index: int) -> None:
        if consumer := self._consumer(index):
            self.consumers.remove(consumer)
            consumer.leave()

    @rule(index=which)
    def die(self, index: int) -> None:
        """Its session and its claims stay until they time out."""
        if consumer := self._consumer(index):
            self.consumers.remove(consumer)
            self.world.watchers.remove(consumer)

    @rule(index=which)
    def remove_registration(self, index: int) -> None:
        """As an operator might; the session lives on, and so do its claims."""
        if consumer := self._consumer(index):
            self.world.consumers.pop(consumer.consumer_id, None)
            self.world.notify()

    @rule(index=which, actions=st.integers(1, 12))
    def act(self, index: int, actions: int) -> None:
        if consumer := self._consumer(index):
            for _ in range(actions):
                consumer.act()

    @rule(index=which)
    def live(self, index: int) -> None:
        """A while of ordinary life: every notice is heard, every step done."""
        if consumer := self._consumer(index):
            consumer.live()

    @rule(index=which, notices=st.integers(1, 3))
    def hear(self, index: int, notices: int) -> None:
        if consumer := self._consumer(index):
            for _ in range(notices):
                consumer.hear()

    @rule(index=which)
    def ask_for_proof(self, index: int) -> None:
        if consumer := self._consumer(index):
            consumer.ask_for_proof()

    @rule(index=which)
    def get_proof(self, index: int) -> None:
        if consumer := self._consumer(index):
            consumer.get_proof()

    @rule(index=which)
    def lose_connection(self, index: int) -> None:
        if consumer := self._consumer(index):
            consumer.lose_connection()

    @rule(passed_s=st.sampled_from([0.1, BACKOFF_S, SESSION_S / 4, SESSION_S]))
    def pass_time(self, passed_s: float) -> None:
        self.world.now_s += passed_s
        self._expire()

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.world.partitions[topic] += 1
        self.world.notify()

    @invariant()
    def no_partition_is_delivered_twice(self) -> None:
        for topic, count in self.world.partitions.items():
            for partition in range(count):
                tp = (topic, partition)
                delivering = [each.name for each in self.consumers if each.delivers(tp)]
                assert len(delivering) <= 1, (tp, delivering)

    def teardown(self) -> None:
        """Once nothing happens any more, every partition is delivered, and by its owner alone."""
        for _ in range(200):
            if all(consumer.rests for consumer in self.consumers) and not self._dead_members():
                break
            for consumer in self.consumers:
                consumer.live()
            self.no_partition_is_delivered_twice()
            self.world.now_s += BACKOFF_S
            self._expire()
        for consumer in self.consumers:
            consumer.live()
        self._check_owners()

    def _check_owners(self) -> None:
        for topic, count in self.world.partitions.items():
            readers = [each for each in self.consumers if topic in each.subscription]
            for tp in ((topic, partition) for partition in range(count)):
                owners = [each for each in self.consumers if each.delivers(tp)]
                assert len(owners) == (1 if readers else 0), (tp, owners)
                assert all(
                    self.world.owners[tp] == (each.session, each.delivering[tp]) for each in owners
                )

    def _dead_members(self) -> bool:
        living = {id(consumer.session) for consumer in self.consumers}
        return any(id(session) not in living for session in self.world.live_sessions())

    def _expire(self) -> None:
        """The ensemble ends the sessions that it heard nothing of for too long."""
        for session in self.world.live_sessions():
            if self.world.now_s < session.heard_s + SESSION_S:
                continue
            self.world.end_session(session)
            for consumer in self.consumers:
                if consumer.session is session:
                    consumer.inbox.append("lost")

    def _consumer(self, index: int) -> SimulatedConsumer | None:
        return self.consumers[index] if index < len(self.consumers) else None


TestAnyGroup = GroupMachine.TestCase
TestAnyGroup.settings = settings(examples(60), stateful_step_count=60)

ALONE = GroupView({"a": {"clicks": 1}}, {"clicks": [0, 1]})
SHARED = GroupView({"a": {"clicks": 1}, "b": {"clicks": 1}}, {"clicks": [0, 1]})
BOTH = {("clicks", 0): thread_of("a", 0), ("clicks", 1): thread_of("a", 0)}
FIRST = {("clicks", 0): thread_of("a", 0)}


def settled(view: GroupView = ALONE) -> Rebalancer:
    """Consumer `a`, which delivers what is its own of `view`."""
    rebalancer = Rebalancer()
    rebalancer.registered("a")
    assert rebalancer.next_step(0) == ReadRegistries()
    rebalancer.read(view)
    rebalancer.next_step(0)
    rebalancer.claimed()
    rebalancer.next_step(0)
    rebalancer.started()
    assert rebalancer.next_step(0) == Wait(None)
    return rebalancer


def test_a_consumer_registers_reads_claims_and_begins() -> None:
    rebalancer = Rebalancer()
    assert rebalancer.next_step(0) == Register()
    rebalancer.registered("a")
    assert rebalancer.next_step(0) == ReadRegistries()
    rebalancer.read(ALONE)
    assert rebalancer.next_step(0) == Claim(BOTH)
    rebalancer.claimed()
    assert rebalancer.next_step(0) == StartStreams(BOTH)
    rebalancer.started()
    assert rebalancer.next_step(0) == Wait(None)
    assert rebalancer.owned == BOTH


def test_a_change_makes_a_consumer_release_all_it_owns_before_it_claims() -> None:
    rebalancer = settled()
    rebalancer.mark_changed()
    assert rebalancer.next_step(0) == ReadRegistries()
    rebalancer.read(SHARED)
    assert rebalancer.next_step(0) == Release(frozenset(BOTH))
    rebalancer.released()
    assert rebalancer.owned == {}
    assert rebalancer.next_step(0) == Claim(FIRST)


def test_a_consumer_with_an_unchanged_assignment_continues() -> None:
    rebalancer = settled()
    rebalancer.mark_changed()
    assert rebalancer.next_step(0) == ReadRegistries()
    rebalancer.read(ALONE)
    assert rebalancer.next_step(0) == Wait(None)
    assert rebalancer.owned == BOTH


def test_a_refused_claim_is_released_in_full_and_tried_again_later() -> None:
    rebalancer = Rebalancer()
    rebalancer.registered("a")
    rebalancer.next_step(0)
    rebalancer.read(ALONE)
    assert rebalancer.next_step(0) == Claim(BOTH)
    rebalancer.refused(5.0)
    assert rebalancer.next_step(0) == Release(frozenset(BOTH))
    rebalancer.released()
    assert rebalancer.next_step(4.9) == Wait(5.0)
    assert rebalancer.next_step(5.0) == ReadRegistries()


def test_a_refused_consumer_does_not_wait_once_something_changed() -> None:
    rebalancer = settled(SHARED)
    rebalancer.mark_changed()
    rebalancer.next_step(0)
    rebalancer.read(ALONE)
    rebalancer.next_step(0)
    rebalancer.released()
    rebalancer.next_step(0)
    rebalancer.refused(5.0)
    rebalancer.next_step(0)
    rebalancer.released()
    assert rebalancer.next_step(1.0) == Wait(5.0)
    rebalancer.mark_changed()
    assert rebalancer.next_step(1.0) == ReadRegistries()


def test_a_change_during_the_release_of_a_refused_claim_counts_as_well() -> None:
    rebalancer = Rebalancer()
    rebalancer.registered("a")
    rebalancer.next_step(0)
    rebalancer.read(ALONE)
    rebalancer.next_step(0)
    rebalancer.refused(5.0)
    rebalancer.next_step(0)
    rebalancer.mark_changed()
    rebalancer.released()
    assert rebalancer.next_step(0) == ReadRegistries()


def test_an_unanswered_claim_is_released_before_the_next() -> None:
    rebalancer = Rebalancer()
    rebalancer.registered("a")
    rebalancer.next_step(0)
    rebalancer.read(ALONE)
    rebalancer.next_step(0)
    rebalancer.failed(2.0)
    assert rebalancer.next_step(1.9) == Wait(2.0)
    assert rebalancer.next_step(2.0) == Release(frozenset(BOTH))


def test_a_step_that_failed_is_done_again() -> None:
    rebalancer = settled()
    rebalancer.mark_changed()
    assert rebalancer.next_step(0) == ReadRegistries()
    rebalancer.failed(2.0)
    assert rebalancer.next_step(0) == Wait(2.0)
    assert rebalancer.next_step(2.0) == ReadRegistries()
    rebalancer.read(SHARED)
    assert rebalancer.next_step(2.0) == Release(frozenset(BOTH))
    rebalancer.failed(4.0)
    assert rebalancer.next_step(4.0) == Release(frozenset(BOTH))


def test_a_change_between_read_and_claim_is_read_first() -> None:
    rebalancer = Rebalancer()
    rebalancer.registered("a")
    rebalancer.next_step(0)
    rebalancer.mark_changed()
    rebalancer.read(ALONE)
    assert rebalancer.next_step(0) == ReadRegistries()


def test_after_a_lost_session_a_consumer_registers_again() -> None:
    rebalancer = settled()
    rebalancer.session_lost()
    assert rebalancer.owned == {}
    assert rebalancer.next_step(0) == Register()


def test_a_consumer_that_finds_itself_unregistered_registers_and_keeps_what_it_owns() -> None:
    rebalancer = settled()
    rebalancer.mark_changed()
    rebalancer.next_step(0)
    rebalancer.read(GroupView({"b": {"clicks": 1}}, {"clicks": [0, 1]}))
    assert rebalancer.next_step(0) == Register()
    rebalancer.registered("a")
    assert rebalancer.next_step(0) == ReadRegistries()
    rebalancer.read(ALONE)
    assert rebalancer.next_step(0) == Wait(None)
    assert rebalancer.owned == BOTH


def test_what_was_to_be_released_is_released_after_the_consumer_registered_again() -> None:
    rebalancer = settled()
    rebalancer.mark_changed()
    rebalancer.next_step(0)
    rebalancer.read(SHARED)
    assert rebalancer.next_step(0) == Release(frozenset(BOTH))
    rebalancer.registration_lost(2.0)
    assert rebalancer.next_step(1.0) == Wait(2.0)
    assert rebalancer.next_step(2.0) == Register()
    rebalancer.registered("a")
    rebalancer.next_step(2.0)
    # Its share is the one it had, but it has stopped to deliver it.
    rebalancer.read(ALONE)
    assert rebalancer.next_step(2.0) == Release(frozenset(BOTH))


def test_what_was_to_begin_begins_after_the_consumer_registered_again() -> None:
    rebalancer = Rebalancer()
    rebalancer.registered("a")
    rebalancer.next_step(0)
    rebalancer.read(ALONE)
    rebalancer.next_step(0)
    rebalancer.claimed()
    assert rebalancer.next_step(0) == StartStreams(BOTH)
    rebalancer.registration_lost(0)
    assert rebalancer.next_step(0) == Register()
    rebalancer.registered("a")
    rebalancer.next_step(0)
    rebalancer.read(ALONE)
    assert rebalancer.next_step(0) == StartStreams(BOTH)
