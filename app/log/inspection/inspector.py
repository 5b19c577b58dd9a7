"""Inspects the current state of the log, for the console and the API."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from app.config import Settings
from app.log.errors import InspectionsBusy
from app.log.inspection.deadline import Deadline
from app.log.inspection.figures import (
    Broker,
    Cluster,
    GroupDetail,
    GroupPage,
    TopicDetail,
    TopicPage,
)
from app.log.inspection.groups import group_detail, group_page, mirror_groups
from app.log.inspection.requests import InspectionRequests
from app.log.inspection.sizes import LogSizeReader
from app.log.inspection.topics import topic_detail, topic_page

TIME_S_MAX: Final = 5.0
"""The time limit of a page if brokers are down; otherwise it takes milliseconds."""

_SIZES_SHARE: Final = 0.3
"""The share of each of the two requests for sizes."""

AT_A_TIME: Final = 8
"""A fifth of the API's worker threads: a hanging log leaves the rest to other routes."""

TOPICS_MAX: Final = 1_000
GROUPS_MAX: Final = 100
"""Limits of a page; each group needs two requests of its own."""


class LogInspector:
    """Returns what the log contains and which groups read it. Thread-safe; blocks.

    Each call takes up to `time_s_max` seconds; nothing is cached. Every method raises
    InspectionsBusy if `at_a_time` calls are running, and LogUnavailable if no broker answers.
    A figure that a broker does not return, or not to this user, is None, with a gap.
    """

    def __init__(
        self, settings: Settings, *, time_s_max: float = TIME_S_MAX, at_a_time: int = AT_A_TIME
    ) -> None:
        self.requests = InspectionRequests(settings)
        """Shared with a `LogBrowser`."""
        self._sizes = LogSizeReader(settings, _SIZES_SHARE * time_s_max)
        self._time_s_max = time_s_max
        self._slots = threading.BoundedSemaphore(at_a_time)

    def cluster(self) -> Cluster:
        """Return the cluster and its live brokers."""
        with self._inspection() as deadline:
            metadata = self.requests.metadata(deadline)
        brokers = (
            Broker(number, each.host or "", each.port, number == metadata.controller_id)
            for number, each in metadata.brokers.items()
        )
        return Cluster(
            metadata.cluster_id or None, tuple(sorted(brokers, key=lambda each: each.id))
        )

    def topics(self, *, after: str = "", containing: str = "", limit: int = 100) -> TopicPage:
        """Return up to `limit` (at most `TOPICS_MAX`) topics by name, after `after`."""
        with self._inspection() as deadline:
            return topic_page(
                self.requests,
                self._sizes,
                after=after,
                containing=containing,
                limit=min(limit, TOPICS_MAX),
                deadline=deadline,
            )

    def topic(self, name: str, *, start: int = 0) -> TopicDetail:
        """Return one topic with up to a thousand partitions, from number `start` on.

        Raises:
            NotInLog: the topic does not exist.
        """
        with self._inspection() as deadline:
            return topic_detail(self.requests, self._sizes, name, start, deadline)

    def groups(self, *, after: str = "", containing: str = "", limit: int = 50) -> GroupPage:
        """Return up to `limit` (at most `GROUPS_MAX`) groups by id, after `after`."""
        with self._inspection() as deadline:
            return group_page(
                self.requests,
                after=after,
                containing=containing,
                limit=min(limit, GROUPS_MAX),
                deadline=deadline,
            )

    def group(self, group_id: str) -> GroupDetail:
        """Return one group with members and partitions.

        Raises:
            NotInLog: its coordinator does not know it.
        """
        with self._inspection() as deadline:
            return group_detail(self.requests, group_id, deadline)

    def mirrors(self) -> GroupPage:
        """Return the groups of mirrors that read this log, among `GROUPS_MAX` groups.

        Mirrors that write to this log have their groups at their source.
        """
        with self._inspection() as deadline:
            return mirror_groups(self.requests, GROUPS_MAX, deadline)

    @contextmanager
    def _inspection(self) -> Iterator[Deadline]:
        if not self._slots.acquire(blocking=False):
            raise InspectionsBusy("inspection limit reached; retry later")
        try:
            yield Deadline(self._time_s_max)
        finally:
            self._slots.release()
