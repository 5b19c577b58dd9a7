"""The lease on a ZooKeeper session: how long its owner may rely on its ephemeral nodes.

Brokers use it for coordination slots, consumers of the paper for partitions.
"""

import math
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient

from logbroker.errors import RegistryUnavailable
from logbroker.registry.zookeeper.session import Deadline, ZooKeeperSession

LEASE_PER_TIMEOUT: Final = 1 / 2
"""The length of a lease, as a part of the session's timeout.

ZooKeeper counts the timeout from the last message that the leader received. That message may be
one renewal old, and a follower may have forwarded it half a tick late. A session's timeout is at
least two ticks, so half a tick is at most a quarter of it. The rest is a margin for slow machines.
"""

RENEWAL_PER_TIMEOUT: Final = 1 / 12
"""The time between two renewals, as a part of the session's timeout."""

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock_s() -> float:
    """Return the seconds since boot; unlike `time.monotonic`, they include machine sleep."""
    return time.clock_gettime(_CLOCK)


class SessionLease:
    """The period in which no other process can own the ephemeral nodes of one session.

    The period starts before the request that renews it is sent. ZooKeeper starts counting when
    it receives the request, so the lease always ends first, even if the process is paused.
    Methods are thread-safe: each change is one assignment.
    """

    def __init__(self, session_id: int, timeout_s: float, sent_s: float) -> None:
        """Start with a request that was sent at `sent_s`; `timeout_s` is the granted timeout."""
        self.session_id = session_id
        self._length_s = timeout_s * LEASE_PER_TIMEOUT
        self._connection = 0
        self._renewed = (self._connection, sent_s + self._length_s)

    @property
    def connection(self) -> int:
        """The number of suspensions; a renewal is valid only for the connection that it used."""
        return self._connection

    def is_valid(self, now_s: float) -> bool:
        """Return whether the session is certainly alive at `now_s` of the boot clock."""
        connection, end_s = self._renewed
        return now_s < end_s and connection == self._connection

    def renew(self, sent_s: float, connection: int) -> None:
        """Extend the lease by a request sent at `sent_s`, when `connection` was read."""
        self._renewed = (connection, sent_s + self._length_s)

    def suspend(self) -> None:
        """Invalidate the lease until it is renewed over the next connection."""
        self._connection += 1

    def end(self) -> None:
        """Invalidate the lease for good."""
        self._length_s = -math.inf
        self.suspend()


class LeaseKeeper:
    """A thread that renews the lease of the current session and revives its connection.

    `current_lease` returns the lease to renew, None without a session. `on_failure` receives the
    error that ended the thread.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        current_lease: Callable[[], SessionLease | None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._session = session
        self._current_lease = current_lease
        self._on_failure = on_failure
        self._wake = threading.Event()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="zookeeper-lease", daemon=True)

    def start(self) -> None:
        """Start the thread, which renews at once."""
        self._wake.set()
        self._thread.start()

    def renew_soon(self) -> None:
        """Renew without waiting for the next interval; called when the connection changes."""
        self._wake.set()

    def stop(self) -> None:
        """Request the end of the thread without waiting for it; the lease expires by itself."""
        self._is_stopping = True
        self._wake.set()

    def _run(self) -> None:
        try:
            while not self._is_stopping:
                self._wake.wait(self._session.timeout_s * RENEWAL_PER_TIMEOUT)
                self._wake.clear()
                if not self._is_stopping:
                    self._session.reopen_if_closed()
                    self._renew()
        except Exception as error:
            self._on_failure(error)

    def _renew(self) -> None:
        lease = self._current_lease()
        if lease is None:
            return
        # Read before the state: a connection that breaks in between invalidates the renewal.
        connection = lease.connection
        before = self._session.state
        if not before.is_connected or before.session_id != lease.session_id:
            return
        sent_s = boot_clock_s()
        deadline = Deadline.after(self._session.timeout_s * LEASE_PER_TIMEOUT)
        try:
            self._session.request_once(_sync, deadline)
        except RegistryUnavailable:
            return
        # An unchanged state means that the answer came over the same connection and session.
        if self._session.state == before:
            lease.renew(sent_s, connection)


def _sync(client: KazooClient) -> Any:
    # The leader answers `sync` and rejects an expired session. A follower answers pings and reads
    # by itself, even while it is cut off from the leader.
    return client.sync_async("/")
