"""Consumers of one group over registries that keep claims exclusive, one small action at a time."""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from logbroker.consumer.rebalance.assignment import Assignment, GroupView
from logbroker.consumer.rebalance.rebalancer import (
    Claim,
    ReadRegistries,
    Rebalancer,
    Register,
    Release,
    StartStreams,
    Step,
    Wait,
)
from logbroker.groups.stored import TopicPartition
from logbroker.registry.zookeeper.lease import SessionLease

SESSION_S = 12.0
BACKOFF_S = 0.5


@dataclass
class Session:
    """A session as the ensemble has it: it ends when nothing was heard for its timeout."""

    session_id: int
    heard_s: float
    is_alive: bool = True


@dataclass
class Registries:
    """What ZooKeeper keeps: claims are exclusive, and end with the session that made them."""

    partitions: dict[str, int]
    now_s: float = 0.0
    consumers: dict[str, tuple[Session, Mapping[str, int]]] = field(default_factory=dict)
    owners: dict[TopicPartition, tuple[Session, str]] = field(default_factory=dict)
    watchers: list["SimulatedConsumer"] = field(default_factory=list)
    sessions: list[Session] = field(default_factory=list)

    def new_session(self) -> Session:
        session = Session(len(self.sessions), self.now_s)
        self.sessions.append(session)
        return session

    def live_sessions(self) -> list[Session]:
        return [session for session in self.sessions if session.is_alive]

    def end_session(self, session: Session) -> None:
        session.is_alive = False
        self.consumers = {k: v for k, v in self.consumers.items() if v[0] is not session}
        self.owners = {k: v for k, v in self.owners.items() if v[0] is not session}
        self.notify()

    def notify(self) -> None:
        """Each consumer hears of it, some time."""
        for watcher in self.watchers:
            watcher.inbox.append("changed")


class SimulatedConsumer:
    """The shell around a `Rebalancer`, with every wait and every notice under the test's hand."""

    def __init__(self, world: Registries, name: str, subscription: Mapping[str, int]) -> None:
        self.world = world
        self.name = name
        self.subscription = subscription
        self.rebalancer = Rebalancer()
        self.consumer_id = ""
        self.session: Session | None = None
        self.lease: SessionLease | None = None
        self.delivering: Assignment = {}
        self.inbox: deque[str] = deque()
        self._action: Iterator[None] | None = None
        self._proof: tuple[float, int, Session] | None = None
        world.watchers.append(self)

    def delivers(self, tp: TopicPartition) -> bool:
        """Whether a message of the partition would be handed out now."""
        return (
            tp in self.delivering
            and self.lease is not None
            and self.lease.is_valid(self.world.now_s)
        )

    @property
    def rests(self) -> bool:
        """Whether nothing is left to do but to wait for a change."""
        return not self.inbox and self._action is None and self._next() == Wait(None)

    def act(self) -> None:
        """Do one thing: a step's next action, or begin the next step."""
        if self._action is None:
            self._action = self._perform(self._next())
        try:
            next(self._action)
        except StopIteration:
            self._action = None

    def hear(self) -> None:
        """Take the oldest notice; it comes between two steps, as from a queue."""
        if self._action is not None or not self.inbox:
            return
        if self.inbox.popleft() == "changed":
            self.rebalancer.mark_changed()
            return
        self.delivering = {}
        self.session = self.lease = None
        self.rebalancer.session_lost()

    def live(self) -> None:
        """Hear every notice and do every step, with a proof of life at the start."""
        self.ask_for_proof()
        self.get_proof()
        for _ in range(50):
            if self.rests:
                break
            self.hear()
            self.act()

    def ask_for_proof(self) -> None:
        """Send the round trip that renews the lease."""
        if self.session is not None and self.lease is not None:
            self._proof = (self.world.now_s, self.lease.connection, self.session)

    def get_proof(self) -> None:
        """The round trip reaches the ensemble and comes back."""
        if self._proof is None:
            return
        (sent_s, connection, session), self._proof = self._proof, None
        if session.is_alive and session is self.session and self.lease is not None:
            session.heard_s = self.world.now_s
            self.lease.renew(sent_s, connection)

    def lose_connection(self) -> None:
        if self.lease is not None:
            self.lease.suspend()
            self.inbox.append("changed")

    def leave(self) -> None:
        """Shut down in order: deliver nothing, then close the session."""
        self.delivering = {}
        self.world.watchers.remove(self)
        if self.session is not None:
            self.world.end_session(self.session)

    def _next(self) -> Step:
        return self.rebalancer.next_step(self.world.now_s)

    def _perform(self, step: Step) -> Iterator[None]:
        match step:
            case Register():
                return self._register()
            case ReadRegistries():
                return self._read()
            case Release():
                return self._release()
            case Claim(assignment):
                return self._claim(assignment)
            case StartStreams(assignment):
                return self._begin(assignment)
            case Wait():
                return iter(())

    def _register(self) -> Iterator[None]:
        sent_s = self.world.now_s
        yield
        if self.session is None:
            self.session = self.world.new_session()
            self.consumer_id = f"{self.name}-{self.session.session_id}"
            self.lease = SessionLease(self.session.session_id, SESSION_S, sent_s)
        if not self._is_connected():
            return
        self.world.consumers[self.consumer_id] = (self.session, self.subscription)
        self.world.notify()
        self.rebalancer.registered(self.consumer_id)

    def _read(self) -> Iterator[None]:
        partitions = {topic: range(count) for topic, count in self.world.partitions.items()}
        yield
        if not self._is_connected():
            return
        consumers = {name: streams for name, (_, streams) in self.world.consumers.items()}
        self.rebalancer.read(GroupView(consumers, partitions))

    def _release(self) -> Iterator[None]:
        self.delivering = {}
        for tp, (session, _) in list(self.world.owners.items()):
            yield
            if not self._may_write():
                return
            if session is self.session:
                del self.world.owners[tp]
                self.world.notify()
        self.rebalancer.released()

    def _claim(self, assignment: Assignment) -> Iterator[None]:
        for tp, thread in assignment.items():
            yield
            if not self._may_write():
                return
            assert self.session is not None
            if tp in self.world.owners:
                self.rebalancer.refused(self.world.now_s + BACKOFF_S)
                return
            self.world.owners[tp] = (self.session, thread)
        self.rebalancer.claimed()

    def _begin(self, assignment: Assignment) -> Iterator[None]:
        yield
        if not self._may_write():
            return
        self.delivering = assignment
        self.rebalancer.started()

    def _may_write(self) -> bool:
        if not self._is_connected():
            return False
        if self.consumer_id in self.world.consumers:
            return True
        self.rebalancer.registration_lost(self.world.now_s + BACKOFF_S)
        return False

    def _is_connected(self) -> bool:
        if self.session is not None and self.session.is_alive:
            return True
        self.rebalancer.failed(self.world.now_s + BACKOFF_S)
        return False
