"""How long a broker may take its session for alive without hearing of ZooKeeper."""

import logging
import time
from threading import Event, Thread
from typing import Final

from logbroker.errors import RegistryUnavailable
from logbroker.registry.zookeeper.session import Deadline, ZooKeeperSession

# ZooKeeper counts a session's timeout from what the leader last heard of it. That is no earlier
# than one renewal and one tick before a round trip to the leader began, and a tick is at most half
# of the timeout that a server grants at least. Half of the timeout leaves room for both.
LEASE_PART: Final = 1 / 2
RENEWAL_PART: Final = 1 / 6

_log = logging.getLogger(__name__)


class Lease:
    """Holds while a round trip to ZooKeeper's leader began less than half a timeout ago.

    The round trip is `sync`, which a server that lost the leader cannot answer by itself.
    """

    def __init__(self, session: ZooKeeperSession) -> None:
        self._session = session
        self._held: tuple[int | None, float] = (None, 0.0)
        self._is_closing = False
        self._due = Event()
        self._thread = Thread(target=self._run, name="zookeeper-lease", daemon=True)

    def start(self) -> None:
        """Renew from now on."""
        self._thread.start()

    def close(self) -> None:
        """Renew no more; it runs out by itself."""
        self._is_closing = True
        self._due.set()

    def renew_soon(self) -> None:
        """Do not wait for the next time, as when the connection has come back."""
        self._due.set()

    def holds(self, now_s: float) -> bool:
        """Whether the session cannot have ended at `now_s` of the monotonic clock."""
        session_id, until_s = self._held
        return session_id == self._session.state.session_id is not None and now_s < until_s

    def _run(self) -> None:
        while not self._is_closing:
            self._due.clear()
            try:
                self._renew()
            except RegistryUnavailable as error:
                _log.debug("the lease was not renewed: %s", error)
            self._due.wait(self._session.timeout_s * RENEWAL_PART)

    def _renew(self) -> None:
        length_s = self._session.timeout_s * LEASE_PART
        session_id = self._session.state.session_id
        sent_s = time.monotonic()
        self._session.ask_once(lambda client: client.sync_async("/"), Deadline.after(length_s))
        if self._session.state.session_id == session_id:
            self._held = (session_id, sent_s + length_s)
