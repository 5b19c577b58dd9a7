"""The thread that claims, reads and commits a consumer's partitions."""

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END

from logbroker.client.errors import BrokersUnavailable, ClientClosed
from logbroker.consumer.fetching import StreamAssignment
from logbroker.consumer.rebalance.assignment import Assignment, GroupView
from logbroker.consumer.rebalance.rebalancer import (
    Begin,
    Claim,
    Read,
    Rebalancer,
    Register,
    Release,
    Rest,
    Step,
)
from logbroker.consumer.received_reports import ConsumerReports
from logbroker.consumer.registries import GroupRegistries, NotRegistered, new_consumer_id
from logbroker.consumer.settings import ConsumerSettings
from logbroker.consumer.stream import MessageStream
from logbroker.consumer.topic_partitions import PartitionLookup, Partitions
from logbroker.errors import LogbrokerError, RegistryUnavailable
from logbroker.groups.stored import TopicPartition
from logbroker.registry.zookeeper.lease import SessionLease, boot_clock_s
from logbroker.registry.zookeeper.session import Deadline, ZooKeeperSession

Offsets = dict[TopicPartition, int]
"""How far a consumer is, or where its partitions end."""


@dataclass(frozen=True, slots=True)
class RegistriesChanged:
    """Something that was read in ZooKeeper may be so no more, or the connection has changed."""


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """The brokers tell of these partitions."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """A user wants offsets stored, what its thread was handed included."""

    thread_id: int
    answer: "Future[Offsets]"


@dataclass(frozen=True, slots=True)
class AuditReportDue:
    """A stream's audit counter is full, and should be reported."""


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The consumer is to give up everything and end."""


@dataclass(frozen=True, slots=True)
class Failed:
    """Another thread of the consumer's has ended, which it cannot do without."""

    error: Exception


Event = (
    RegistriesChanged
    | PartitionsChanged
    | CommitRequested
    | AuditReportDue
    | ShutdownRequested
    | Failed
)


_log: Final = logging.getLogger(__name__)

LEAVE_S: Final = 5.0
"""How long a consumer that shuts down waits for ZooKeeper to take its last offsets."""

Streams = Mapping[str, Sequence[MessageStream]]


class Coordinator:
    """Does what a `Rebalancer` says, one step after the other.

    Everything that others have to tell it comes through one queue; it alone writes the registries
    and tells the streams what is theirs.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        session: ZooKeeperSession,
        directory: PartitionLookup,
        streams: Streams,
        reports: ConsumerReports | None = None,
    ) -> None:
        self._settings = settings
        self._session = session
        self._directory = directory
        self._streams = streams
        self._reports = reports
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._registries = GroupRegistries(session, settings.group_id, self.look_again)
        self._rebalancer = Rebalancer()
        self._consumer_id = new_consumer_id(settings.group_id)
        self._partitions: Partitions = {}
        self._lease: SessionLease | None = None
        # How far the partitions were processed that nobody delivers any more, until it is stored.
        self._parting: Offsets = {}
        self._stored: Offsets = {}
        self._next_commit_s = boot_clock_s()
        self._is_leaving = False
        self._is_over = False
        self._first_round = threading.Event()
        self._thread = threading.Thread(target=self._run, name="consumer-coordinator", daemon=True)

    def start(self, partitions: Partitions) -> None:
        """Begin with these partitions; when this returns, a first claim has been tried."""
        self._partitions = partitions
        self._thread.start()
        self._first_round.wait()

    @property
    def lease(self) -> SessionLease | None:
        """That of the present session; none before the consumer is registered."""
        return self._lease

    def connection_changed(self) -> None:
        """The session's state is another now; safe on any thread, and never waits."""
        lease = self._lease
        if lease is not None and not self._session.state.is_connected:
            lease.suspend()
        self.look_again()

    def look_again(self) -> None:
        """What was read in ZooKeeper may be so no more; safe on any thread."""
        self._events.put(RegistriesChanged())

    def partitions_changed(self, partitions: Partitions) -> None:
        """The brokers tell of these partitions; safe on any thread."""
        self._events.put(PartitionsChanged(partitions))

    def report_soon(self) -> None:
        """Report to the audit soon, because a counter is full; thread-safe."""
        self._events.put(AuditReportDue())

    def fail(self, error: Exception) -> None:
        """End the consumer, as another thread of its has ended; safe on any thread."""
        self._events.put(Failed(error))

    def commit(self, timeout_s: float) -> Offsets:
        """Store how far the consumer is: the offsets that are stored of what it owns now.

        Raises:
            RegistryUnavailable: ZooKeeper did not answer; they may be stored or not.
            BrokersUnavailable: the audit report was not acknowledged; nothing was stored.
            ClientClosed: the coordinator has ended.
        """
        answer: Future[Offsets] = Future()
        self._events.put(CommitRequested(threading.get_ident(), answer))
        if self._is_over:
            raise ClientClosed("the connector is shut down")
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            raise RegistryUnavailable("ZooKeeper did not answer in time") from None

    def leave(self) -> None:
        """Commit, release, and end the streams; returns when it is done."""
        self._events.put(ShutdownRequested())
        self._thread.join()

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            while not self._is_leaving:
                self._turn()
            self._depart()
        except Exception as error:
            _log.exception("a consumer of group %s failed", self._settings.group_id)
            failure = ClientClosed(f"the connector failed: {error!r}")
        finally:
            self._first_round.set()
            for stream in self._all_streams():
                stream.end(failure)
            # Whoever asks after this sees it; whoever asked before is in the queue.
            self._is_over = True
            self._refuse_the_rest()

    def _turn(self) -> None:
        while not self._events.empty():
            self._take(self._events.get())
        self._notice_lost_session()
        if self._settings.auto_commit_interval_s is not None:
            self._commit_when_due(self._settings.auto_commit_interval_s)
        if self._reports is not None:
            self._reports.report_when_due(boot_clock_s)
        step = self._rebalancer.next_step(boot_clock_s())
        if isinstance(step, Rest):
            self._first_round.set()
            self._rest(step)
        else:
            self._try(step)

    def _rest(self, step: Rest) -> None:
        moments = [step.until_s] if step.until_s is not None else []
        if self._settings.auto_commit_interval_s is not None:
            moments.append(self._next_commit_s)
        if self._reports is not None:
            moments.append(self._reports.next_s)
        timeout_s = max(0.0, min(moments) - boot_clock_s()) if moments else None
        try:
            self._take(self._events.get(timeout=timeout_s))
        except Empty:
            return

    def _take(self, event: Event) -> None:
        match event:
            case RegistriesChanged():
                self._rebalancer.changed()
            case PartitionsChanged(partitions):
                self._partitions = partitions
                self._rebalancer.changed()
            case CommitRequested(thread_id, answer):
                self._answer_commit(thread_id, answer)
            case AuditReportDue():
                self._report_received()
            case ShutdownRequested():
                self._is_leaving = True
            case Failed(error):
                raise error

    def _try(self, step: Step) -> None:
        try:
            self._perform(step)
        except NotRegistered:
            _log.warning("the registration of %s is gone", self._consumer_id)
            self._rebalancer.unregistered(self._retry_s())
        except RegistryUnavailable as error:
            _log.warning("%s of %s: %s", type(step).__name__, self._consumer_id, error)
            self._rebalancer.failed(self._retry_s())

    def _perform(self, step: Step) -> None:
        match step:
            case Register():
                self._register()
            case Read():
                view = GroupView(self._registries.consumers(), self._partitions)
                self._rebalancer.read(view)
            case Release(places):
                self._release(places)
            case Claim(assignment):
                if self._registries.claim(assignment):
                    self._rebalancer.claimed()
                else:
                    self._rebalancer.refused(self._retry_s())
            case Begin(assignment):
                self._begin(assignment)
            case Rest():
                raise AssertionError("nothing to perform")

    def _register(self) -> None:
        before = self._session.state
        sent_s = boot_clock_s()
        subscription = {topic: len(streams) for topic, streams in self._streams.items()}
        session_id = self._registries.register(self._consumer_id, subscription)
        if self._lease is not None and self._lease.session_id != session_id:
            self._give_up()
        if self._lease is None:
            self._lease = SessionLease(session_id, self._session.timeout_s, sent_s)
            # Whoever heard of a broken connection meanwhile found no lease to suspend.
            if self._session.state != before:
                self._lease.suspend()
        _log.info("registered consumer=%s session=0x%x", self._consumer_id, session_id)
        self._rebalancer.registered(self._consumer_id)

    def _release(self, places: Iterable[TopicPartition]) -> None:
        self._parting |= self._revoke()
        offsets = self._parting_offsets()
        self._registries.release(places, offsets)
        self._parting = {}
        self._stored = {}
        self._rebalancer.released()

    def _parting_offsets(self) -> Offsets:
        """Return the offsets to store at a release; none without an acknowledged report."""
        may_store = self._report_received() and self._settings.auto_commit_interval_s is not None
        return self._parting if may_store else {}

    def _report_received(self) -> bool:
        """Report what was returned, if there is an audit; return whether offsets may be stored."""
        return self._reports is None or self._reports.report()

    def _begin(self, assignment: Assignment) -> None:
        self._stored = self._registries.offsets(assignment)
        self._fix_starts([place for place in assignment if place not in self._stored])
        lease = self._lease
        assert lease is not None, "claims are made by a registered consumer alone"
        for topic, streams in self._streams.items():
            for number, stream in enumerate(streams):
                if starts := self._starts(assignment, topic, number):
                    stream.begin(StreamAssignment(topic, starts, lease))
        _log.info("consumer=%s reads %s", self._consumer_id, sorted(assignment))
        self._rebalancer.begun()

    def _fix_starts(self, places: Sequence[TopicPartition]) -> None:
        """Store where a group that is new to these partitions begins, if that is at their ends.

        The end moves on: if the first owner went before it committed, the next one would begin
        later, and nobody would read what lies between.
        """
        if places and self._settings.auto_offset_reset == "largest":
            ends = self._directory.ends(places)
            self._registries.commit(ends)
            self._stored |= ends

    def _starts(self, assignment: Assignment, topic: str, stream: int) -> dict[int, int]:
        is_largest = self._settings.auto_offset_reset == "largest"
        otherwise = OFFSET_END if is_largest else OFFSET_BEGINNING
        return {
            place[1]: self._stored.get(place, otherwise)
            for place, thread in assignment.items()
            if place[0] == topic and thread.rpartition("-")[2] == str(stream)
        }

    def _notice_lost_session(self) -> None:
        # While the connection is down only, the session's id stays.
        if self._lease is not None and self._session.state.session_id != self._lease.session_id:
            _log.warning("consumer=%s lost its session", self._consumer_id)
            self._give_up()
            self._consumer_id = new_consumer_id(self._settings.group_id)

    def _give_up(self) -> None:
        """What was owned is not: nothing more of it is delivered, and nothing can be stored."""
        if self._lease is not None:
            self._lease.end()
        self._lease = None
        self._revoke()
        self._parting = {}
        self._stored = {}
        self._rebalancer.session_lost()

    def _revoke(self) -> Offsets:
        return self._offsets(lambda stream: stream.revoke())

    def _offsets(self, positions: Callable[[MessageStream], Mapping[int, int]]) -> Offsets:
        return {
            (stream.topic, partition): offset
            for stream in self._all_streams()
            for partition, offset in positions(stream).items()
        }

    def _all_streams(self) -> list[MessageStream]:
        return [stream for streams in self._streams.values() for stream in streams]

    def _commit_when_due(self, interval_s: float) -> None:
        now_s = boot_clock_s()
        if now_s < self._next_commit_s:
            return
        self._next_commit_s = now_s + interval_s
        try:
            self._commit()
        except (RegistryUnavailable, BrokersUnavailable) as error:
            _log.warning("offsets of %s are not stored yet: %s", self._consumer_id, error)

    def _answer_commit(self, thread_id: int, answer: "Future[Offsets]") -> None:
        for stream in self._all_streams():
            stream.count_handed(thread_id)
        try:
            self._commit()
        except LogbrokerError as error:
            answer.set_exception(error)
        else:
            answer.set_result(dict(self._stored))

    def _commit(self) -> None:
        """Store what has moved since it was stored last.

        Raises:
            RegistryUnavailable: it may be stored or not.
            BrokersUnavailable: the audit report was not acknowledged; nothing was stored.
        """
        positions = self._offsets(lambda stream: stream.positions())
        moved = {k: v for k, v in positions.items() if self._stored.get(k) != v}
        if not moved:
            return
        # After the positions were read, so that the report covers them.
        if not self._report_received():
            raise BrokersUnavailable(
                "the topic 'audit' did not acknowledge the report of received messages"
            )
        try:
            self._registries.commit(moved)
        except NotRegistered:
            self._rebalancer.unregistered(self._retry_s())
            raise RegistryUnavailable("the consumer's registration is gone") from None
        self._stored |= moved

    def _depart(self) -> None:
        """Store and release what is ours; the end of the session would release it as well."""
        self._parting |= self._revoke()
        offsets = self._parting_offsets()
        places = self._rebalancer.owned.keys() | self._parting.keys()
        try:
            self._registries.release(places, offsets, Deadline.after(LEAVE_S))
        except (RegistryUnavailable, NotRegistered) as error:
            _log.warning("what %s read last comes again: %r", self._consumer_id, error)

    def _refuse_the_rest(self) -> None:
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, CommitRequested):
                event.answer.set_exception(ClientClosed("the connector is shut down"))

    def _retry_s(self) -> float:
        """When to try again; consumers that got into each other's way part by chance."""
        return boot_clock_s() + self._settings.rebalance_backoff_s * random.uniform(0.5, 1.5)  # noqa: S311
