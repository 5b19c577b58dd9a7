"""Samples the log once a minute: records and sizes of topics, lags of consumer groups."""

import asyncio
import logging
import time
from typing import Final

from app.domain.log_samples import ALL_GROUPS, ALL_TOPICS, LogSample, Series, SeriesKind
from app.log.errors import LogError
from app.log.inspection import GroupPage, LogInspector, TopicPage
from app.log.inspection.inspector import GROUPS_MAX, TOPICS_MAX
from app.log.topics import DELIVERY_LOG, EVENTS
from app.process import BackgroundTask, on_own_thread
from app.store import Store, StoreError
from app.store.log_samples import LogSamples

_log: Final = logging.getLogger("rewind.api")

INTERVAL_S: Final = 60.0

TOPICS_SAMPLED_MAX: Final = 100
"""The topics with most records. Those of the live path are always sampled, and so are its groups;
of other groups, the first `GROUPS_MAX` by id."""

_LIVE_TOPICS: Final = frozenset((EVENTS, DELIVERY_LOG))
_LIVE_GROUPS: Final = "rewind-"
"""What the ids of the service's groups begin with."""


class LogSampler(BackgroundTask):
    """Stores a sample of the log every minute during its `async with`.

    Every API process tries; the first one in a minute does the work. The first try is a minute
    after the start, when log and database are up. Errors are logged, and leave a gap.
    """

    def __init__(
        self,
        store: Store,
        samples: LogSamples,
        inspector: LogInspector,
        kept_ms: int,
        interval_s: float = INTERVAL_S,
    ) -> None:
        super().__init__(_log, "log-samples-stopped")
        self._store = store
        self._samples = samples
        self._inspector = inspector
        self._kept_ms = kept_ms
        self._interval_s = interval_s

    async def _run(self) -> None:
        due_s = time.monotonic()
        while True:
            due_s = max(due_s + self._interval_s, time.monotonic())
            await asyncio.sleep(due_s - time.monotonic())
            try:
                await on_own_thread(self.sample)
            except (LogError, StoreError) as error:
                _log.warning("log-samples-failed", extra={"reason": str(error)})

    def sample(self) -> bool:
        """Store a sample and delete old ones, unless this minute has one; returns whether it did.

        Raises:
            LogError: the log does not answer, or too many inspections are running.
            StoreError: the database does not answer, or has another schema.
        """
        # A missing table would raise an error that is no StoreError.
        self._store.check()
        minute_ms = self._samples.claim_minute()
        if minute_ms is None:
            return False
        topics = self._inspector.topics(limit=TOPICS_MAX)
        groups = self._inspector.groups(limit=GROUPS_MAX)
        if groups.next_after is not None:
            live = self._inspector.groups(containing=_LIVE_GROUPS, limit=GROUPS_MAX)
            groups = _merge(groups, live)
        found = topic_samples(topics, minute_ms) | group_samples(groups, minute_ms)
        self._samples.add(minute_ms, found)
        while self._samples.delete_expired(minute_ms, self._kept_ms):
            pass
        return True


def topic_samples(page: TopicPage, minute_ms: int) -> dict[Series, LogSample]:
    """Return the samples of topics, and of all together if all are known."""
    known = [(each, each.written) for each in page.topics if each.written is not None]
    known.sort(key=lambda each: (each[0].name not in _LIVE_TOPICS, -each[1]))
    found = {
        Series(SeriesKind.TOPIC, topic.name): LogSample(minute_ms, written, topic.bytes)
        for topic, written in known[:TOPICS_SAMPLED_MAX]
    }
    if len(known) == len(page.topics) == page.total:
        sizes = [topic.bytes for topic, _ in known if topic.bytes is not None]
        size = sum(sizes) if len(sizes) == len(known) else None
        found[ALL_TOPICS] = LogSample(minute_ms, sum(written for _, written in known), size)
    return found


def group_samples(page: GroupPage, minute_ms: int) -> dict[Series, LogSample]:
    """Return the lags of groups, and their sum if no figure is missing.

    A group without committed offsets has no lag.
    """
    found = {
        Series(SeriesKind.GROUP, each.id): LogSample(minute_ms, each.lag)
        for each in page.groups
        if each.lag is not None
    }
    if len(page.groups) == page.total and not page.gaps:
        lag = sum(each.value for each in found.values())
        found[ALL_GROUPS] = LogSample(minute_ms, lag)
    return found


def _merge(first: GroupPage, second: GroupPage) -> GroupPage:
    groups = {each.id: each for each in (*first.groups, *second.groups)}
    return GroupPage(tuple(groups.values()), first.total, None, first.gaps + second.gaps)
