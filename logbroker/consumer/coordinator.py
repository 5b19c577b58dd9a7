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
    Claim,
    ReadRegistries,
    Rebalancer,
    Register,
    Release,
    StartStreams,
    Step,
    Wait,
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
"""Offsets by partition: consumed positions, committed offsets or log end offsets."""


@dataclass(frozen=True, slots=True)
class RegistriesChanged:
    """The registries or the connection may have changed."""


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """The topics have other partitions than before."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """A user requests a commit, including the last message of its thread."""

    thread_id: int
    answer: "Future[Offsets]"


@dataclass(frozen=True, slots=True)
class AuditReportDue:
    """A stream's audit counter is full, and should be reported."""


@dataclass(frozen=True, slots=True)
class ShutdownRequested:
    """The consumer is to release everything and end."""


@dataclass(frozen=True, slots=True)
class ThreadFailed:
    """Another thread of the consumer has failed."""

    error: Exception


Event = (
    RegistriesChanged
    | PartitionsChanged
    | CommitRequested
    | AuditReportDue
    | ShutdownRequested
    | ThreadFailed
)


_log: Final = logging.getLogger(__name__)

LEAVE_S: Final = 5.0
"""How long a consumer that shuts down waits for ZooKeeper to store its last offsets."""

Streams = Mapping[str, Sequence[MessageStream]]


class Coordinator:
    """Executes the steps of a `Rebalancer`, one after another.

    All events arrive through one queue. Only this thread writes the registries and starts or
    revokes streams.
    """

    def __init__(
        self,
        settings: ConsumerSettings,
        session: ZooKeeperSession,
        lookup: PartitionLookup,
        streams: Streams,
        reports: ConsumerReports | None = None,
    ) -> None:
        self._settings = settings
        self._session = session
        self._lookup = lookup
        self._streams = streams
        self._reports = reports
        self._events: SimpleQueue[Event] = SimpleQueue()
        self._registries = GroupRegistries(session, settings.group_id, self.mark_changed)
        self._rebalancer = Rebalancer()
        self._consumer_id = new_consumer_id(settings.group_id)
        self._partitions: Partitions = {}
        self._lease: SessionLease | None = None
        # Positions of revoked partitions that are not committed yet.
        self._revoked: Offsets = {}
        self._stored: Offsets = {}
        self._next_commit_s = boot_clock_s()
        self._is_leaving = False
        self._has_ended = False
        self._first_claim_tried = threading.Event()
        self._thread = threading.Thread(target=self._run, name="consumer-coordinator", daemon=True)

    def start(self, partitions: Partitions) -> None:
        """Start with these partitions; returns after the first attempt to claim."""
        self._partitions = partitions
        self._thread.start()
        self._first_claim_tried.wait()

    @property
    def lease(self) -> SessionLease | None:
        """The lease of the current session; None before the consumer is registered."""
        return self._lease

    def connection_changed(self) -> None:
        """React to a change of the session's state; thread-safe and non-blocking."""
        lease = self._lease
        if lease is not None and not self._session.state.is_connected:
            lease.suspend()
        self.mark_changed()

    def mark_changed(self) -> None:
        """Read the registries again; thread-safe."""
        self._events.put(RegistriesChanged())

    def partitions_changed(self, partitions: Partitions) -> None:
        """Rebalance with these partitions; thread-safe."""
        self._events.put(PartitionsChanged(partitions))

    def report_soon(self) -> None:
        """Report to the audit soon, because a counter is full; thread-safe."""
        self._events.put(AuditReportDue())

    def fail(self, error: Exception) -> None:
        """End the consumer because another of its threads failed; thread-safe."""
        self._events.put(ThreadFailed(error))

    def commit(self, timeout_s: float) -> Offsets:
        """Commit the consumed positions, and return the committed offsets of the owned partitions.

        Raises:
            RegistryUnavailable: ZooKeeper did not answer; the offsets may be stored or not.
            BrokersUnavailable: the audit report was not acknowledged; nothing was stored.
            ClientClosed: the coordinator has ended.
        """
        answer: Future[Offsets] = Future()
        self._events.put(CommitRequested(threading.get_ident(), answer))
        if self._has_ended:
            raise ClientClosed("the connector is shut down")
        try:
            return answer.result(timeout_s)
        except TimeoutError:
            raise RegistryUnavailable("ZooKeeper did not answer in time") from None

    def leave(self) -> None:
        """Commit, release, and end the streams; returns when done."""
        self._events.put(ShutdownRequested())
        self._thread.join()

    def _run(self) -> None:
        failure: Exception | None = None
        try:
            while not self._is_leaving:
                self._turn()
            self._leave_group()
        except Exception as error:
            _log.exception("a consumer of group %s failed", self._settings.group_id)
            failure = ClientClosed(f"the connector failed: {error!r}")
        finally:
            self._first_claim_tried.set()
            for stream in self._all_streams():
                stream.end(failure)
            # Later requests see this flag; earlier ones are in the queue.
            self._has_ended = True
            self._reject_pending_commits()

    def _turn(self) -> None:
        while not self._events.empty():
            self._handle_event(self._events.get())
        self._check_session()
        if self._settings.auto_commit_interval_s is not None:
            self._commit_when_due(self._settings.auto_commit_interval_s)
        if self._reports is not None:
            self._reports.report_when_due(boot_clock_s)
        step = self._rebalancer.next_step(boot_clock_s())
        if isinstance(step, Wait):
            self._first_claim_tried.set()
            self._wait_for_event(step)
        else:
            self._perform_or_retry(step)

    def _wait_for_event(self, step: Wait) -> None:
        moments = [step.until_s] if step.until_s is not None else []
        if self._settings.auto_commit_interval_s is not None:
            moments.append(self._next_commit_s)
        if self._reports is not None:
            moments.append(self._reports.next_s)
        timeout_s = max(0.0, min(moments) - boot_clock_s()) if moments else None
        try:
            self._handle_event(self._events.get(timeout=timeout_s))
        except Empty:
            return

    def _handle_event(self, event: Event) -> None:
        match event:
            case RegistriesChanged():
                self._rebalancer.mark_changed()
            case PartitionsChanged(partitions):
                self._partitions = partitions
                self._rebalancer.mark_changed()
            case CommitRequested(thread_id, answer):
                self._commit_on_request(thread_id, answer)
            case AuditReportDue():
                self._report_received()
            case ShutdownRequested():
                self._is_leaving = True
            case ThreadFailed(error):
                raise error

    def _perform_or_retry(self, step: Step) -> None:
        try:
            self._perform(step)
        except NotRegistered:
            _log.warning("registration lost consumer=%s", self._consumer_id)
            self._rebalancer.registration_lost(self._retry_at_s())
        except RegistryUnavailable as error:
            _log.warning("%s failed consumer=%s: %s", type(step).__name__, self._consumer_id, error)
            self._rebalancer.failed(self._retry_at_s())

    def _perform(self, step: Step) -> None:
        match step:
            case Register():
                self._register()
            case ReadRegistries():
                view = GroupView(self._registries.read_consumers(), self._partitions)
                self._rebalancer.read(view)
            case Release(topic_partitions):
                self._release(topic_partitions)
            case Claim(assignment):
                if self._registries.claim(assignment):
                    self._rebalancer.claimed()
                else:
                    self._rebalancer.refused(self._retry_at_s())
            case StartStreams(assignment):
                self._start_streams(assignment)
            case Wait():
                raise AssertionError("nothing to perform")

    def _register(self) -> None:
        before = self._session.state
        sent_s = boot_clock_s()
        subscription = {topic: len(streams) for topic, streams in self._streams.items()}
        session_id = self._registries.register(self._consumer_id, subscription)
        if self._lease is not None and self._lease.session_id != session_id:
            self._abandon_ownership()
        if self._lease is None:
            self._lease = SessionLease(session_id, self._session.timeout_s, sent_s)
            # If the connection broke in between, there was no lease to suspend yet.
            if self._session.state != before:
                self._lease.suspend()
        _log.info("registered consumer=%s session=0x%x", self._consumer_id, session_id)
        self._rebalancer.registered(self._consumer_id)

    def _release(self, topic_partitions: Iterable[TopicPartition]) -> None:
        self._revoked |= self._revoke()
        offsets = self._storable_offsets()
        self._registries.release(topic_partitions, offsets)
        self._revoked = {}
        self._stored = {}
        self._rebalancer.released()

    def _storable_offsets(self) -> Offsets:
        """Return the offsets to store at a release; none without an acknowledged report."""
        may_store = self._report_received() and self._settings.auto_commit_interval_s is not None
        return self._revoked if may_store else {}

    def _report_received(self) -> bool:
        """Report what was returned, if there is an audit; return whether offsets may be stored."""
        return self._reports is None or self._reports.report()

    def _start_streams(self, assignment: Assignment) -> None:
        self._stored = self._registries.load_offsets(assignment)
        self._commit_initial_offsets([tp for tp in assignment if tp not in self._stored])
        lease = self._lease
        assert lease is not None, "claims are made by a registered consumer alone"
        for topic, streams in self._streams.items():
            for number, stream in enumerate(streams):
                if starts := self._starts(assignment, topic, number):
                    stream.start(StreamAssignment(topic, starts, lease))
        _log.info("assigned consumer=%s partitions=%s", self._consumer_id, sorted(assignment))
        self._rebalancer.started()

    def _commit_initial_offsets(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Commit the log end as the start of partitions that are new to the group.

        The log end moves. If the first owner left before a commit, the next owner would start at a
        later end, and the messages in between would be lost.
        """
        if topic_partitions and self._settings.auto_offset_reset == "largest":
            ends = self._lookup.end_offsets(topic_partitions)
            self._registries.commit(ends)
            self._stored |= ends

    def _starts(self, assignment: Assignment, topic: str, stream: int) -> dict[int, int]:
        is_largest = self._settings.auto_offset_reset == "largest"
        otherwise = OFFSET_END if is_largest else OFFSET_BEGINNING
        return {
            tp[1]: self._stored.get(tp, otherwise)
            for tp, thread in assignment.items()
            if tp[0] == topic and thread.rpartition("-")[2] == str(stream)
        }

    def _check_session(self) -> None:
        # A lost connection alone does not change the session id.
        if self._lease is not None and self._session.state.session_id != self._lease.session_id:
            _log.warning("session lost consumer=%s", self._consumer_id)
            self._abandon_ownership()
            self._consumer_id = new_consumer_id(self._settings.group_id)

    def _abandon_ownership(self) -> None:
        """Revoke everything after the loss of the session; nothing can be committed."""
        if self._lease is not None:
            self._lease.end()
        self._lease = None
        self._revoke()
        self._revoked = {}
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
            _log.warning("commit failed, will retry consumer=%s: %s", self._consumer_id, error)

    def _commit_on_request(self, thread_id: int, answer: "Future[Offsets]") -> None:
        for stream in self._all_streams():
            stream.mark_processed(thread_id)
        try:
            self._commit()
        except LogbrokerError as error:
            answer.set_exception(error)
        else:
            answer.set_result(dict(self._stored))

    def _commit(self) -> None:
        """Commit the positions that have changed since the last commit.

        Raises:
            RegistryUnavailable: the offsets may be stored or not.
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
            self._rebalancer.registration_lost(self._retry_at_s())
            raise RegistryUnavailable("the consumer is no longer registered") from None
        self._stored |= moved

    def _leave_group(self) -> None:
        """Commit and release the owned partitions, before the session's end would free them."""
        self._revoked |= self._revoke()
        offsets = self._storable_offsets()
        topic_partitions = self._rebalancer.owned.keys() | self._revoked.keys()
        try:
            self._registries.release(topic_partitions, offsets, Deadline.after(LEAVE_S))
        except (RegistryUnavailable, NotRegistered) as error:
            _log.warning("what %s read last comes again: %r", self._consumer_id, error)

    def _reject_pending_commits(self) -> None:
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, CommitRequested):
                event.answer.set_exception(ClientClosed("the connector is shut down"))

    def _retry_at_s(self) -> float:
        """Return the time of the next attempt; jitter separates competing consumers."""
        return boot_clock_s() + self._settings.rebalance_backoff_s * random.uniform(0.5, 1.5)  # noqa: S311
