"""A broker's place in a ZooKeeper cluster: the one thread that follows and takes part."""

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
    Move,
    fence_of,
    is_held_in,
    make_move,
    plan_slots,
)
from logbroker.registry.zookeeper.facts import Facts, Seat, view_of
from logbroker.registry.zookeeper.payloads import Registration, parse_cluster_id
from logbroker.registry.zookeeper.registration import (
    conflict_with,
    register,
    run_for_controller,
)
from logbroker.registry.zookeeper.session import (
    CLOSE_S,
    REQUEST_S,
    Deadline,
    ZooKeeperSession,
    get,
)
from logbroker.registry.zookeeper.view_watcher import ALL_SLOTS, ViewWatcher

RETRY_S: Final = 0.25
"""How soon to look again at what could not be done; a watch mostly tells sooner."""

PREDECESSOR_S: Final = 2.0
"""How much longer than a session's timeout to wait for one that holds this broker's id."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Joining:
    """A thread that waits for this broker to be registered."""

    on_change: Callable[[ClusterView], None]
    deadline: Deadline
    done: Future[None] = field(default_factory=Future)


class ClusterFollower:
    """Reads what has changed, registers, claims and gives up, and hands on each new view.

    All of that happens on one thread, turn by turn. A turn begins by giving up whatever
    belonged to a session that is over, and hands that on, before it claims anything anew.
    """

    def __init__(
        self, session: ZooKeeperSession, broker_id: int, directory_id: str, cluster_id: str
    ) -> None:
        self._session = session
        self._directory_id = directory_id
        self._cluster_id = cluster_id
        self._wake = Event()
        self._watcher = ViewWatcher(session, self._wake.set)
        self._seat = Seat(broker_id, None)
        self._own_sessions: set[int] = set()
        self._checked_session: int | None = None
        """The last session that was found to be with the cluster that this broker follows."""
        self._connections = 0
        self._registration: Registration | None = None
        self._joining: _Joining | None = None
        self._last_conflict: str | None = None
        self._cluster_id_found: str | None = cluster_id
        self._on_change: Callable[[ClusterView], None] | None = None
        self._view = view_of(Facts(), self._seat, cluster_id)
        self._waiting: list[Future[None]] = []
        self._doubtful: set[int] = set()
        self._lock = Lock()
        self._is_closing = False
        self._thread = Thread(target=self._run, name="zookeeper-follower", daemon=True)

    @property
    def view(self) -> ClusterView:
        """The newest view."""
        return self._view

    def start(self) -> None:
        """Follow from now on; when this returns, the view has what was there.

        Raises:
            RegistryUnavailable: it could not be read in time.
        """
        self._thread.start()
        self.wait_for(())

    def stop(self) -> None:
        """Hand nothing on any more; the session is closed by its owner, then `finish` called."""
        self._is_closing = True
        self._wake.set()

    def finish(self) -> None:
        """Wait for the thread's end, which the end of the session brings about."""
        if self._thread.is_alive():
            self._thread.join(CLOSE_S)
        joining = [] if self._joining is None else [self._joining.done]
        for each in self._take_waiting() + joining:
            each.set_exception(RegistryUnavailable("the registry was closed"))

    def look(self) -> None:
        """Have a turn soon: the session's state has changed."""
        self._wake.set()

    def join(self, endpoint: BrokerEndpoint, on_change: Callable[[ClusterView], None]) -> None:
        """See `Registry.join`."""
        # An earlier broker's session may have to end first.
        patience = Deadline.after(self._session.timeout_s + PREDECESSOR_S)
        joining = _Joining(on_change, patience)
        self._joining = joining
        self._registration = Registration(endpoint, self._directory_id)
        self._wake.set()
        try:
            joining.done.result(patience.remaining_s + REQUEST_S)
        except TimeoutError:
            raise RegistryUnavailable("the broker could not be registered in time") from None

    def wait_for(self, changed: Iterable[str]) -> None:
        """Wait until the view that has what these paths hold now was handed on.

        Raises:
            RegistryUnavailable: they could not be read in time.
        """
        done: Future[None] = Future()
        # Before the future: a turn that finds the one has to have read the other.
        self._watcher.mark(changed)
        with self._lock:
            self._waiting.append(done)
        self._wake.set()
        try:
            done.result(REQUEST_S)
        except TimeoutError:
            raise RegistryUnavailable("the change was made, and not read back in time") from None

    def check_session(self) -> None:
        """Refuse to change anything in a session that may be with another cluster.

        A session cannot go on in another one; whoever takes its place there begins a new one.

        Raises:
            RegistryUnavailable: the present session is new, or over.
        """
        if self._session.state.session_id != self._checked_session or not self._checked_session:
            raise RegistryUnavailable("this broker has no place in its cluster at present")

    def fence_of(self, slot: int) -> int:
        """The fence of a slot that is this broker's in its present session.

        Raises:
            NotCoordinator: it is not this broker's.
        """
        return fence_of(self._watcher.facts, self._session.state.session_id, slot)

    def note_refusal(self, slot: int) -> None:
        """Give a slot up that is not under the fence it was thought to be under.

        If it still is this broker's it is claimed anew: whoever works from what it held learns
        by that to read it again.
        """
        with self._lock:
            self._doubtful.add(slot)
        self._look_at(ALL_SLOTS[slot])

    def _run(self) -> None:
        while not self._is_closing:
            self._wake.clear()
            if self._turn_or_log():
                self._wake.wait(RETRY_S)
            else:
                self._wake.wait()

    def _turn_or_log(self) -> bool:
        try:
            return self._turn()
        except RegistryUnavailable as error:
            _log.debug("cut short: %s", error)
        except Exception:
            # The outer loop of this thread, without which the broker would see nothing any more.
            _log.exception("a turn has failed")
        return True

    def _turn(self) -> bool:
        """Bring everything up to date; whether to look again without being woken."""
        state = self._session.state
        if state.session_id != self._seat.session_id:
            self._seat = Seat(self._seat.broker_id, state.session_id)
            if state.session_id is not None:
                self._own_sessions.add(state.session_id)
            self._publish()
        if not state.is_connected:
            return False
        if state.connections != self._connections:
            self._check_cluster()
            self._checked_session = state.session_id
            self._watcher.mark_everything()
            self._connections = state.connections
        waiting = self._take_waiting()
        try:
            self._watcher.refresh()
        except BaseException:
            with self._lock:
                self._waiting = waiting + self._waiting
            raise
        moves = plan_slots(self._watcher.facts, self._seat) | self._clear_doubtful()
        self._publish(giving_up=[n for n, move in moves.items() if move is Move.CLEAR])
        for each in waiting:
            each.set_result(None)
        is_blocked = self._stand()
        return self._move(moves) or is_blocked

    def _clear_doubtful(self) -> dict[int, Move]:
        with self._lock:
            doubtful, self._doubtful = self._doubtful, set()
        slots, session_id = self._watcher.facts.slots, self._seat.session_id
        return {n: Move.CLEAR for n in doubtful if is_held_in(slots[n], session_id)}

    def _check_cluster(self) -> None:
        """Follow no other cluster: its topics are others, so all data would be removed.

        Raises:
            RegistryUnavailable: what is there now is not what this broker has joined.
        """
        (answer,) = self._session.ask_all([get(paths.CLUSTER_ID)])
        found = None if answer is None else parse_cluster_id(answer[0])
        is_news = found != self._cluster_id_found
        self._cluster_id_found = found
        if found != self._cluster_id:
            why = f"ZooKeeper has cluster {found}, not {self._cluster_id}"
            if is_news:
                _log.error("nothing is followed: %s; it leads nothing until that is back", why)
            raise RegistryUnavailable(why)

    def _stand(self) -> bool:
        """Register, and run for controller; whether another has this broker's id."""
        if self._registration is None:
            return False
        facts = self._watcher.facts
        own_sessions = None if self._on_change is None else self._own_sessions
        conflict = conflict_with(facts, self._seat, self._directory_id, own_sessions)
        if conflict is not None:
            self._bear(conflict)
            return True
        self._last_conflict = None
        if register(self._session, facts, self._seat, self._registration):
            self._look_at(paths.BROKER_IDS)
        if run_for_controller(self._session, facts, self._seat):
            self._look_at(paths.CONTROLLER)
        return False

    def _bear(self, conflict: str) -> None:
        """Wait for the other broker's end, and refuse to join once that took too long."""
        joining = self._joining
        if joining is not None and joining.deadline.remaining_s == 0:
            self._joining = self._registration = None
            joining.done.set_exception(
                ConfigurationError(f"broker_id is {self._seat.broker_id}; {conflict}")
            )
        elif conflict != self._last_conflict:
            self._last_conflict = conflict
            _log.warning("waiting to be broker %d: %s", self._seat.broker_id, conflict)

    def _move(self, moves: dict[int, Move]) -> bool:
        """Claim and clear slots; whether something came in between."""
        is_surprised = False
        for number, move in moves.items():
            try:
                make_move(self._session, self._watcher.facts, self._seat, number, move)
            except (NodeExistsError, NoNodeError, BadVersionError):
                is_surprised = True
            self._watcher.mark([ALL_SLOTS[number]])
        if moves and not is_surprised:
            self._wake.set()
        return is_surprised

    def _look_at(self, path: str) -> None:
        self._watcher.mark([path])
        self._wake.set()

    def _publish(self, giving_up: Collection[int] = ()) -> None:
        """Hand on the view, if it is another one or the first for a broker that joins."""
        if self._is_closing:
            return
        view = view_of(self._watcher.facts, self._seat, self._cluster_id, giving_up)
        joining = self._joining
        has_joined = joining is not None and self._seat.broker_id in view.brokers
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
