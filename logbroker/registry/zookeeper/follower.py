"""The thread that follows ZooKeeper and registers this broker in the cluster."""

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Final

from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

from logbroker.errors import ConfigurationError, RegistryUnavailable
from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.zookeeper import paths
from logbroker.registry.zookeeper.coordination import (
    SlotAction,
    fence_of,
    is_held_in,
    perform_slot_action,
    plan_slot_actions,
)
from logbroker.registry.zookeeper.payloads import Registration, parse_cluster_id
from logbroker.registry.zookeeper.registration import (
    claim_controller,
    find_conflict,
    register,
)
from logbroker.registry.zookeeper.session import (
    CLOSE_S,
    REQUEST_S,
    Deadline,
    ZooKeeperSession,
    get,
)
from logbroker.registry.zookeeper.snapshot import BrokerSession, Snapshot, build_view
from logbroker.registry.zookeeper.view_watcher import ALL_SLOTS, ViewWatcher

RETRY_S: Final = 0.25
"""How soon to retry what failed; usually a watch fires earlier."""

PREDECESSOR_S: Final = 2.0
"""How much longer than a session timeout to wait for another broker with this id."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Joining:
    """A thread that waits for this broker's registration."""

    on_change: Callable[[ClusterView], None]
    deadline: Deadline
    done: Future[None] = field(default_factory=Future)


class ClusterFollower:
    """Reads changes, registers, claims and releases slots, and publishes each new view.

    All of this runs on one thread, in turns. A turn first releases what belonged to an expired
    session and publishes that, before it claims anything.
    """

    def __init__(
        self, session: ZooKeeperSession, broker_id: int, directory_id: str, cluster_id: str
    ) -> None:
        self._session = session
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._wake = Event()
        self._watcher = ViewWatcher(session, self._wake.set)
        self._broker_session = BrokerSession(broker_id, None)
        self._own_sessions: set[int] = set()
        self._checked_session: int | None = None
        """The last session that was verified to belong to this broker's cluster."""
        self._connections = 0
        self._registration: Registration | None = None
        self._joining: _Joining | None = None
        self._last_conflict: str | None = None
        self._cluster_id_found: str | None = cluster_id
        self._on_change: Callable[[ClusterView], None] | None = None
        self._view = build_view(Snapshot(), self._broker_session, cluster_id)
        self._waiting: list[Future[None]] = []
        self._suspect_slots: set[int] = set()
        self._lock = Lock()
        self._is_closing = False
        self._thread = Thread(target=self._run, name="zookeeper-follower", daemon=True)

    @property
    def view(self) -> ClusterView:
        """The newest view."""
        return self._view

    def start(self) -> None:
        """Start the thread; returns when the view is current.

        Raises:
            RegistryUnavailable: ZooKeeper could not be read in time.
        """
        self._thread.start()
        self.wait_for(())

    def stop(self) -> None:
        """Publish no further views; the owner then closes the session and calls `finish`."""
        self._is_closing = True
        self._wake.set()

    def finish(self) -> None:
        """Wait for the thread, which ends with the session."""
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        joining = [] if self._joining is None else [self._joining.done]
        for each in self._take_waiting() + joining:
            each.set_exception(RegistryUnavailable("the registry was closed"))

    def wake(self) -> None:
        """Run a turn soon, because the session's state has changed."""
        self._wake.set()

    def join(self, endpoint: BrokerEndpoint, on_change: Callable[[ClusterView], None]) -> None:
        """See `Registry.join`."""
        # The session of an earlier process may have to expire first.
        deadline = Deadline.after(self._session.timeout_s + PREDECESSOR_S)
        joining = _Joining(on_change, deadline)
        self._joining = joining
        self._registration = Registration(endpoint, self._directory_id)
        self._wake.set()
        try:
            joining.done.result(deadline.remaining_s + REQUEST_S)
        except TimeoutError:
            raise RegistryUnavailable("the broker could not be registered in time") from None

    def wait_for(self, changed: Iterable[str]) -> None:
        """Wait until a view with the current content of these paths is published.

        Raises:
            RegistryUnavailable: they could not be read in time.
        """
        done: Future[None] = Future()
        # Marked before the future is added: a turn that completes the future has read the paths.
        self._watcher.mark_dirty(changed)
        with self._lock:
            self._waiting.append(done)
        self._wake.set()
        try:
            done.result(REQUEST_S)
        except TimeoutError:
            raise RegistryUnavailable("the change was made but not read back in time") from None

    def check_session(self) -> None:
        """Raise unless the session was verified to belong to this broker's cluster.

        A session cannot move to another cluster; a server that replaces this one starts a new
        session.

        Raises:
            RegistryUnavailable: the current session is new, or has expired.
        """
        if self._session.state.session_id != self._checked_session or not self._checked_session:
            raise RegistryUnavailable("this broker is not in its cluster at present")

    def fence_of(self, slot: int) -> int:
        """Return the fence of a slot that this broker holds in its current session.

        Raises:
            NotCoordinator: this broker does not hold the slot.
        """
        return fence_of(self._watcher.snapshot, self._session.state.session_id, slot)

    def handle_refused_write(self, slot: int) -> None:
        """Release a slot whose fence differs from the expected one.

        If this broker still holds it, it claims the slot again. Users of the old claim then know
        that they must load the slot again.
        """
        with self._lock:
            self._suspect_slots.add(slot)
        self._refresh_path(ALL_SLOTS[slot])

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.clear()
            if self._run_turn_or_log():
                self._wake.wait(RETRY_S)
            else:
                self._wake.wait()

    def _run_turn_or_log(self) -> bool:
        try:
            return self._run_turn()
        except RegistryUnavailable as error:
            _log.debug("turn interrupted: %s", error)
        except Exception:
            # The outer loop of this thread; without it the broker would see no further changes.
            _log.exception("turn failed")
        return True

    def _run_turn(self) -> bool:
        """Bring everything up to date; return whether to retry without being woken."""
        state = self._session.state
        if state.session_id != self._broker_session.session_id:
            self._broker_session = BrokerSession(self._broker_session.broker_id, state.session_id)
            if state.session_id is not None:
                self._own_sessions.add(state.session_id)
            self._publish()
        if not state.is_connected:
            return False
        if state.connections != self._connections:
            self._check_cluster()
            self._checked_session = state.session_id
            self._watcher.mark_all_dirty()
            self._connections = state.connections
        waiting = self._take_waiting()
        try:
            self._watcher.refresh()
        except BaseException:
            with self._lock:
                self._waiting = waiting + self._waiting
            raise
        moves = (
            plan_slot_actions(self._watcher.snapshot, self._broker_session)
            | self._release_suspect_slots()
        )
        self._publish(giving_up=[n for n, move in moves.items() if move is SlotAction.RELEASE])
        for each in waiting:
            each.set_result(None)
        is_blocked = self._register()
        return self._move(moves) or is_blocked

    def _release_suspect_slots(self) -> dict[int, SlotAction]:
        with self._lock:
            suspects, self._suspect_slots = self._suspect_slots, set()
        slots, session_id = self._watcher.snapshot.slots, self._broker_session.session_id
        return {n: SlotAction.RELEASE for n in suspects if is_held_in(slots[n], session_id)}

    def _check_cluster(self) -> None:
        """Reject another cluster: its topics differ, so all local data would be deleted.

        Raises:
            RegistryUnavailable: the server holds another cluster than the one that this broker
                joined.
        """
        (answer,) = self._session.request_all([get(paths.CLUSTER_ID)])
        found = None if answer is None else parse_cluster_id(answer[0])
        is_news = found != self._cluster_id_found
        self._cluster_id_found = found
        if found != self._cluster_id:
            why = f"ZooKeeper has cluster {found}, not {self._cluster_id}"
            if is_news:
                _log.error("left the cluster: %s; leads no partition until it is back", why)
            raise RegistryUnavailable(why)

    def _register(self) -> bool:
        """Register, and claim the controller role; return whether another broker has this id."""
        if self._registration is None:
            return False
        snapshot = self._watcher.snapshot
        own_sessions = None if self._on_change is None else self._own_sessions
        conflict = find_conflict(snapshot, self._broker_session, self._directory_id, own_sessions)
        if conflict is not None:
            self._handle_conflict(conflict)
            return True
        self._last_conflict = None
        if register(self._session, snapshot, self._broker_session, self._registration):
            self._refresh_path(paths.BROKER_IDS)
        if claim_controller(self._session, snapshot, self._broker_session):
            self._refresh_path(paths.CONTROLLER)
        return False

    def _handle_conflict(self, conflict: str) -> None:
        """Wait for the other broker to end, and fail `join` after the deadline."""
        joining = self._joining
        if joining is not None and joining.deadline.remaining_s == 0:
            self._joining = self._registration = None
            joining.done.set_exception(
                ConfigurationError(f"broker_id is {self._broker_session.broker_id}; {conflict}")
            )
        elif conflict != self._last_conflict:
            self._last_conflict = conflict
            _log.warning("waiting to be broker %d: %s", self._broker_session.broker_id, conflict)

    def _move(self, moves: dict[int, SlotAction]) -> bool:
        """Claim and release slots; return whether another broker interfered."""
        is_surprised = False
        for number, move in moves.items():
            try:
                perform_slot_action(
                    self._session, self._watcher.snapshot, self._broker_session, number, move
                )
            except (NodeExistsError, NoNodeError, BadVersionError):
                is_surprised = True
            self._watcher.mark_dirty([ALL_SLOTS[number]])
        if moves and not is_surprised:
            self._wake.set()
        return is_surprised

    def _refresh_path(self, path: str) -> None:
        self._watcher.mark_dirty([path])
        self._wake.set()

    def _publish(self, giving_up: Collection[int] = ()) -> None:
        """Publish the view if it has changed, or if this broker has just joined."""
        if self._is_closing:
            return
        view = build_view(self._watcher.snapshot, self._broker_session, self._cluster_id, giving_up)
        joining = self._joining
        has_joined = joining is not None and self._broker_session.broker_id in view.brokers
        if joining is not None and has_joined:
            self._on_change, self._joining = joining.on_change, None
        if view != self._view or has_joined:
            self._view = view
            if self._on_change is not None:
                self._on_change(view)
        if joining is not None and has_joined:
            joining.done.set_result(None)

    def _take_waiting(self) -> list[Future[None]]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting
