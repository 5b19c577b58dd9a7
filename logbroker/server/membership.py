"""The broker's membership in its cluster: registration, and delivery of cluster views."""

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

from logbroker.registry.cluster import BrokerEndpoint, ClusterView
from logbroker.registry.registry import Registry
from logbroker.registry.topic import Topic
from logbroker.server.loop import SocketLoop
from logbroker.server.worker_pool import WorkerPool

log = logging.getLogger("logbroker.membership")

ViewListener = Callable[[ClusterView], None]

DiskWork = Callable[[], None]
"""Work on the disk that a view requires, for any thread."""

Step = Iterator[DiskWork | None]
"""Work on the loop's thread, a part per turn; the next part follows the work that one yields."""


class Membership:
    """Delivers every cluster view on the loop's thread, in order and without gaps.

    No view may be skipped: a broker that lost and regained its session must resign its
    partitions in between, since other brokers may have led them.

    `apply` applies a view, in parts; what it yields runs on `pool`. Then the listeners get the
    view. Later views wait.
    """

    def __init__(
        self,
        registry: Registry,
        loop: SocketLoop,
        broker_id: int,
        apply: Callable[[ClusterView], Step],
        pool: WorkerPool,
    ) -> None:
        self._registry = registry
        self._loop = loop
        self._broker_id = broker_id
        self._apply = apply
        self._pool = pool
        self._listeners: list[ViewListener] = []
        self._queue: deque[Callable[[], Step]] = deque()
        self._is_in_step = False
        self._is_registered = False

    def add_listener(self, listener: ViewListener) -> None:
        """Call `listener` with every later view, after the listeners added before it."""
        self._listeners.append(listener)

    def join(self, endpoint: BrokerEndpoint) -> None:
        """Register this broker and deliver the current view.

        Raises:
            ConfigurationError: another broker is registered with this id.
        """
        self._registry.join(endpoint, self._queue_view)
        while self._queue:
            for work in self._queue.popleft()():
                if work is not None:
                    work()

    def call_after_views(self, call: Callable[[], None]) -> None:
        """Run `call` once the views that are queued now are delivered; immediately if none is."""

        def step() -> Step:
            call()
            yield from ()

        self.run_between_views(step)

    def run_between_views(self, start: Callable[[], Step]) -> None:
        """Run a step once the queued views are delivered; later views wait for its end."""
        is_first = not self._queue
        self._queue.append(start)
        if is_first:
            self._run_queued()

    def leave(self) -> None:
        """Deregister, so that clients switch to the other brokers at once."""
        cluster_id = self._registry.view.cluster_id
        self._registry.close()
        log.info("left cluster=%s broker_id=%d", cluster_id, self._broker_id)

    def _queue_view(self, view: ClusterView) -> None:
        """Queue a new view; called on a thread of the registry."""
        self._queue.append(lambda: self._deliver(view))
        self._loop.call_soon(self._run_queued)

    def _run_queued(self) -> None:
        while self._queue and not self._is_in_step:
            self._is_in_step = True
            self._continue(self._queue.popleft()())

    def _continue(self, step: Step) -> None:
        for work in step:
            if work is None:
                self._loop.call_soon(partial(self._continue, step))
            else:
                self._pool.submit(work, partial(self._finish_work, step))
            return
        self._is_in_step = False
        # Not called here: a thousand queued steps would nest a thousand calls.
        self._loop.call_soon(self._run_queued)

    def _finish_work(self, step: Step, result: Exception | None) -> None:
        if result is not None:
            raise result
        self._continue(step)

    def _deliver(self, view: ClusterView) -> Step:
        self._log_registration(view)
        yield from self._apply(view)
        for listener in self._listeners:
            listener(view)

    def _log_registration(self, view: ClusterView) -> None:
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
                "lost registration cluster=%s broker_id=%d", view.cluster_id, self._broker_id
            )


class KnownTopics:
    """The topics of the newest view, and the topics whose metadata became unreadable.

    An unreadable topic may later prove to be another topic with the same name. Until its
    metadata is readable again, nothing of it may be deleted.
    """

    def __init__(self, view: ClusterView) -> None:
        self._topics = view.topics
        self.unreadable: Mapping[str, Topic] = MappingProxyType({})
        """Topics that exist and whose metadata is unreadable, as they were before."""

    def update(self, view: ClusterView) -> list[Topic]:
        """Store the topics of a view; returns deleted topics, also those replaced by name."""
        names = (*view.topics.changed_since(self._topics), *self.unreadable)
        known = {name: topic for name in names if (topic := self._find(name)) is not None}
        still = {name: topic for name in view.unreadable if (topic := self._find(name)) is not None}
        self.unreadable = MappingProxyType(still)
        self._topics = view.topics
        return [topic for topic in known.values() if not self._is_known(topic)]

    def _find(self, name: str) -> Topic | None:
        return self._topics.get(name) or self.unreadable.get(name)

    def _is_known(self, topic: Topic) -> bool:
        known = self._find(topic.name)
        return known is not None and known.topic_id == topic.topic_id
