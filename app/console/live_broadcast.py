"""Queries what all open pages show, once a second, and queues the changes for each page."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from jinja2 import Environment

from app.console.health import HealthMonitor, health_parts
from app.console.job_parts import JobView, job_parts
from app.console.job_rows import counter_parts, row_parts
from app.console.live_deliveries import DeliveryUpdates
from app.console.live_pages import COUNTERS, HEALTH, JOB_PREFIX, OpenPage, PageUpdate
from app.console.live_settled import queue_counts, read_counts
from app.domain.model import Replay, ReplayFilter
from app.domain.states import ReplayState
from app.process import on_own_thread
from app.services.errors import NoStreamsLeft, TooManyStreams
from app.services.progress_watch import RETRY_AFTER_S, STREAMS_MAX, STREAMS_PER_KEY_MAX, version_of
from app.services.services import Services, now_ms
from app.store import StoreError

LOGGER: Final = logging.getLogger("rewind.console")

TICK_S: Final = 1.0

IDS_PER_QUERY: Final = 500

CounterScope = tuple[str | None, ReplayFilter]
"""The account and the filter whose replays are counted."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    """The state of everything on open pages."""

    replays: dict[str, tuple[Replay, str]]
    """Replays with their versions, by id."""

    counts: dict[CounterScope, dict[ReplayState, int]]

    settled: Mapping[tuple[int, str], int]
    """See `live_settled`."""

    accounts: Mapping[str, str]
    """The accounts of the webhooks in `settled`."""


class Broadcaster:
    """Sends changes to open pages. For one event loop; idle while no page is open.

    A tick costs a few queries, regardless of the number of open pages. Each change is encoded
    once, for all pages that show it. Queries run on a thread of their own, so that a database that
    hangs delays neither health updates nor the shutdown.
    """

    def __init__(self, services: Services, health: HealthMonitor, environment: Environment) -> None:
        self._services = services
        self._health = health
        self._environment = environment
        self._pages: set[OpenPage] = set()
        self._by_key: Counter[str] = Counter()
        self._ticker: asyncio.Task[None] | None = None
        self._query: asyncio.Task[None] | None = None
        self._deliveries = DeliveryUpdates(services, environment)
        self._lookup: asyncio.Task[None] | None = None
        self._events: dict[tuple[str, str], str] = {}

    @property
    def is_closed(self) -> bool:
        """Whether the process is shutting down. Every stream ends then."""
        return self._services.progress_watch.is_closed

    @contextmanager
    def register(self, page: OpenPage, key_id: str) -> Iterator[None]:
        """Send changes to a page until the context ends.

        Raises:
            Problem: the key or the process has reached its limit of open pages.
        """
        self._check_limits(key_id)
        self._by_key[key_id] += 1
        self._pages.add(page)
        if self._ticker is None:
            self._ticker = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self._by_key[key_id] -= 1
            self._by_key += Counter()  # removes keys without open pages
            self._pages.discard(page)

    def _check_limits(self, key_id: str) -> None:
        if self._by_key[key_id] >= STREAMS_PER_KEY_MAX:
            detail = f"this key has {STREAMS_PER_KEY_MAX} live pages open, the maximum; close one"
            raise TooManyStreams(detail, retry_after_s=RETRY_AFTER_S)
        if self.is_closed or len(self._pages) >= STREAMS_MAX:
            detail = f"this server has {STREAMS_MAX} live pages open, the maximum"
            raise NoStreamsLeft(detail, retry_after_s=RETRY_AFTER_S)

    async def _run(self) -> None:
        try:
            while self._pages and not self.is_closed:
                await self._tick()
                await asyncio.sleep(TICK_S)
        finally:
            self._ticker = None
            for page in self._pages:
                page.has_updates.set()

    async def _tick(self) -> None:
        """Queue changes of the health and, unless the previous queries still run, of the data."""
        if self._query is None or self._query.done():
            self._query = asyncio.create_task(self._queue_changes())
        if self._lookup is None or self._lookup.done():
            self._lookup = asyncio.create_task(self._queue_deliveries())
        health = await self._health.read()
        self._queue_parts(list(self._pages), HEALTH, health_parts(self._environment, health))
        await asyncio.wait([self._query], timeout=TICK_S)

    async def _queue_changes(self) -> None:
        pages = list(self._pages)
        try:
            snapshot = await on_own_thread(partial(self._read_snapshot, pages))
            self._queue_counters(pages, snapshot)
            queue_counts(pages, snapshot.settled, snapshot.accounts)
            await self._queue_replays(pages, snapshot.replays)
        except StoreError:
            pass  # the health on the page reports it; the next tick retries
        except Exception:
            LOGGER.exception("cannot update open pages")

    async def _queue_deliveries(self) -> None:
        try:
            await self._deliveries.queue_changes(list(self._pages))
        except Exception:
            LOGGER.exception("cannot update deliveries on open pages")

    def _read_snapshot(self, pages: list[OpenPage]) -> _Snapshot:
        store = self._services.store
        ids = sorted(set[str]().union(*(page.replay_ids for page in pages)))
        found: dict[str, Replay] = {}
        for start in range(0, len(ids), IDS_PER_QUERY):
            found |= store.replays_by_id(ids[start : start + IDS_PER_QUERY])
        replays = {each: (replay, version_of(replay)) for each, replay in found.items()}
        scopes = {(page.account, page.jobs) for page in pages if COUNTERS in page.versions}
        counts = {
            scope: dict(store.count_by_state(scope[1], of_account=scope[0])) for scope in scopes
        }
        settled = read_counts(self._services, pages, now_ms())
        accounts = store.find_webhook_accounts({webhook_id for _, webhook_id in settled})
        return _Snapshot(replays, counts, settled, accounts)

    def _queue_counters(self, pages: list[OpenPage], snapshot: _Snapshot) -> None:
        for scope, counts in snapshot.counts.items():
            pages_of_scope = [page for page in pages if (page.account, page.jobs) == scope]
            self._queue_parts(pages_of_scope, COUNTERS, counter_parts(counts))

    async def _queue_replays(
        self, pages: list[OpenPage], replays: dict[str, tuple[Replay, str]]
    ) -> None:
        events: dict[tuple[str, str], str] = {}
        for page in pages:
            for item in list(page.versions):
                replay, version = replays.get(item.removeprefix(JOB_PREFIX), (None, ""))
                if replay is None or page.account not in (None, replay.account_id):
                    continue
                if page.is_outdated(item, version):
                    event = await self._event(events, item, version, replay)
                    page.queue_update(item, version, event)
            # Hundreds of pages with different rows would block the event loop.
            await asyncio.sleep(0)
        self._events = events

    async def _event(
        self, events: dict[tuple[str, str], str], item: str, version: str, replay: Replay
    ) -> str:
        """Return the event of a version, which is rendered when the first page needs it."""
        event = events.get((item, version)) or self._events.get((item, version))
        if event is None:
            if item.startswith(JOB_PREFIX):
                parts = await on_own_thread(partial(self._render_job, replay))
            else:
                parts = row_parts(self._environment, replay, now_ms())
            event = PageUpdate(item, version, parts).encode()
        events[item, version] = event
        return event

    def _render_job(self, replay: Replay) -> dict[str, str]:
        store = self._services.store
        view = JobView(replay, store.moves(replay.id), store.samples(replay.id))
        return job_parts(self._environment, view, now_ms())

    def _queue_parts(self, pages: Iterable[OpenPage], item: str, parts: dict[str, str]) -> None:
        version = sha256("\0".join(parts.values()).encode()).hexdigest()[:16]
        event = None
        for page in pages:
            if page.is_outdated(item, version):
                event = event or PageUpdate(item, version, parts).encode()
                page.queue_update(item, version, event)
