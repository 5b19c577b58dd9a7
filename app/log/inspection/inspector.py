"""Looks at the log as it is now: for pages of operators, and for the API."""

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
from app.log.inspection.questions import LogQuestions
from app.log.inspection.sizes import LogSizeReader
from app.log.inspection.topics import topic_detail, topic_page

TIME_S_MAX: Final = 5.0
"""How long a page may take when brokers are away; with all of them there it takes milliseconds."""

_SIZES_SHARE: Final = 0.3
"""Of that, for each of the two questions that find sizes."""

AT_A_TIME: Final = 8
"""A fifth of the threads that routes have: a log that hangs leaves the rest to others."""

TOPICS_MAX: Final = 1_000
GROUPS_MAX: Final = 100
"""Of a page; each group costs two questions of its own."""


class LogInspector:
    """Answers what the log holds and who reads it. Safe to use from any thread; blocks.

    Each call takes up to `time_s_max` seconds and remembers nothing. Every method raises
    InspectionsBusy when `at_a_time` calls are under way, and LogUnavailable when no broker answers;
    what single brokers do not tell, or not to this user, is None in the answer, with a gap.
    """

    def __init__(
        self, settings: Settings, *, time_s_max: float = TIME_S_MAX, at_a_time: int = AT_A_TIME
    ) -> None:
        self.questions = LogQuestions(settings)
        """Which a `LogBrowser` may share."""
        self._sizes = LogSizeReader(settings, _SIZES_SHARE * time_s_max)
        self._time_s_max = time_s_max
        self._places = threading.BoundedSemaphore(at_a_time)

    def cluster(self) -> Cluster:
        """The cluster and the brokers that live."""
        with self._look() as deadline:
            told = self.questions.metadata(deadline)
        brokers = (
            Broker(number, each.host or "", each.port, number == told.controller_id)
            for number, each in told.brokers.items()
        )
        return Cluster(told.cluster_id or None, tuple(sorted(brokers, key=lambda each: each.id)))

    def topics(self, *, after: str = "", containing: str = "", limit: int = 100) -> TopicPage:
        """Up to `limit` (`TOPICS_MAX` at most) topics by name, those behind `after`."""
        with self._look() as deadline:
            return topic_page(
                self.questions,
                self._sizes,
                after=after,
                containing=containing,
                limit=min(limit, TOPICS_MAX),
                deadline=deadline,
            )

    def topic(self, name: str, *, start: int = 0) -> TopicDetail:
        """One topic with up to a thousand partitions, from number `start` on.

        Raises:
            NotInLog: the log has none of this name.
        """
        with self._look() as deadline:
            return topic_detail(self.questions, self._sizes, name, start, deadline)

    def groups(self, *, after: str = "", containing: str = "", limit: int = 50) -> GroupPage:
        """Up to `limit` (`GROUPS_MAX` at most) groups by id, those behind `after`."""
        with self._look() as deadline:
            return group_page(
                self.questions,
                after=after,
                containing=containing,
                limit=min(limit, GROUPS_MAX),
                deadline=deadline,
            )

    def group(self, group_id: str) -> GroupDetail:
        """One group with members and partitions.

        Raises:
            NotInLog: its coordinator has never heard of it.
        """
        with self._look() as deadline:
            return group_detail(self.questions, group_id, deadline)

    def mirrors(self) -> GroupPage:
        """The groups of mirrors that read this log, looked for among `GROUPS_MAX` groups.

        What is mirrored into this log is told at the log that it comes from.
        """
        with self._look() as deadline:
            return mirror_groups(self.questions, GROUPS_MAX, deadline)

    @contextmanager
    def _look(self) -> Iterator[Deadline]:
        if not self._places.acquire(blocking=False):
            raise InspectionsBusy("as many looks into the log as may be are under way")
        try:
            yield Deadline(self._time_s_max)
        finally:
            self._places.release()
