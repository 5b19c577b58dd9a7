"""Renews the lease of a consumer's session by round trips to ZooKeeper."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from kazoo.client import KazooClient

from logbroker.consumer.lease import RENEWAL_SHARE, SessionLease
from logbroker.errors import RegistryUnavailable
from logbroker.registry.zookeeper.session import Deadline, ZooKeeperSession

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock_s() -> float:
    """Seconds since boot; unlike the monotonic clock it goes on while the machine sleeps."""
    return time.clock_gettime(_CLOCK)


class LeaseKeeper:
    """A thread that proves again and again that the session of the present lease lives.

    `failed` hears of an error that ended it.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        lease: Callable[[], SessionLease | None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._session = session
        self._lease = lease
        self._failed = failed
        self._wake = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def hurry(self) -> None:
        """Prove it now, as there is a new connection; safe on any thread."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread, which may still wait for ZooKeeper."""
        self._is_over = True
        self._wake.set()

    def _run(self) -> None:
        try:
            self._keep()
        except Exception as error:
            self._failed(error)

    def _keep(self) -> None:
        while not self._is_over:
            self._wake.wait(self._session.timeout_s * RENEWAL_SHARE)
            self._wake.clear()
            lease = self._lease()
            if lease is not None and not self._is_over:
                self._session.revive()
                self._prove(lease)

    def _prove(self, lease: SessionLease) -> None:
        # Read before the state: a connection that breaks in between voids the proof.
        connection = lease.connection
        before = self._session.state
        if not before.is_connected or before.session_id != lease.session_id:
            return
        sent_s = boot_clock_s()
        try:
            self._session.ask_once(_sync, Deadline.after(self._session.timeout_s))
        except RegistryUnavailable:
            return
        # The answer came over the same connection, so it was of this session.
        if self._session.state == before:
            lease.renew(sent_s, connection)


def _sync(client: KazooClient) -> Any:
    # The leader answers it, and refuses a session that is over; a follower answers a ping or a
    # read by itself, even while it is cut off from the leader.
    return client.sync_async("/")
