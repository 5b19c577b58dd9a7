"""A broker's place in its cluster: joining it, leaving it, and following what happens there."""

import logging
from collections import deque
from collections.abc import Callable

from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.registry import Registry
from logbroker.server.loop import SocketLoop

log = logging.getLogger("logbroker.membership")

Follower = Callable[[ClusterView], None]


class Membership:
    """Brings each view of the cluster to the loop's thread, in order and none left out.

    None may be left out: a broker that lost its session and found it again must give up in
    between what was its own, since others may have had it meanwhile.
    """

    def __init__(self, registry: Registry, loop: SocketLoop, broker_id: int) -> None:
        self._registry = registry
        self._loop = loop
        self._broker_id = broker_id
        self._followers: list[Follower] = []
        self._views: deque[ClusterView] = deque()
        self._is_registered = False

    def add_follower(self, follower: Follower) -> None:
        """Have `follower` told of each view from now on, behind those added before it."""
        self._followers.append(follower)

    def join(self, endpoint: BrokerEndpoint) -> None:
        """Register this broker, and follow what the cluster is then.

        Raises:
            ConfigurationError: another broker is registered under this id.
        """
        self._registry.join(endpoint, self._changed)
        while self._views:
            self._follow_next()

    def leave(self) -> None:
        """Leave at once, so that clients turn to those who stay."""
        cluster_id = self._registry.view.cluster_id
        self._registry.close()
        log.info("left cluster=%s broker_id=%d", cluster_id, self._broker_id)

    def _changed(self, view: ClusterView) -> None:
        """Take a new view, on a thread of the registry's."""
        self._views.append(view)
        self._loop.call_soon(self._follow_next)

    def _follow_next(self) -> None:
        if not self._views:
            return  # it was among those that `join` has followed
        view = self._views.popleft()
        self._note_registration(view)
        for follower in self._followers:
            follower(view)

    def _note_registration(self, view: ClusterView) -> None:
        is_registered = self._broker_id in view.brokers
        if is_registered == self._is_registered:
            return
        self._is_registered = is_registered
        if is_registered:
            log.info(
                "joined cluster=%s broker_id=%d brokers=%s",
                view.cluster_id,
                self._broker_id,
                sorted(view.brokers),
            )
        else:
            log.warning(
                "lost its place in cluster=%s broker_id=%d", view.cluster_id, self._broker_id
            )
