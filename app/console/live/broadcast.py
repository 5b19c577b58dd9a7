"""Looks at all that open pages show, once for all of them, and tells each what is new to it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from typing import Final

from app.api.doors import Doors
from app.api.problems import BUSY, TOO_MANY_STREAMS, Problem
from app.api.progress_watch import WATCHERS_MAX, WATCHERS_PER_KEY_MAX
from app.api.replay_progress import event_id
from app.console.health import Health, HealthWatch
from app.console.live.parts import PartMaker
from app.console.live.seats import COUNTERS, HEALTH, JOB_PREFIX, Change, Seat
from app.domain.filters import ReplayFilter
from app.domain.model import Replay
from app.domain.states import ReplayState
from app.process import on_own_thread
from app.store import StoreError

LOGGER: Final = logging.getLogger("rewind.console")

TICK_S: Final = 1.0

IDS_AT_A_TIME: Final = 500
"""Replays that one query asks for."""

Scope = tuple[str | None, ReplayFilter]
"""Whose replays, and which of them, are counted."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one look at the database found."""

    replays: dict[str, tuple[Replay, str]]
    """Each with its version."""

    counts: dict[Scope, dict[ReplayState, int]]


class Broadcaster:
    """Tells open pages what has changed. For one event loop; idle while no page is open.

    A look costs two queries or so, however many pages are open; an event is made once for each
    change, for all pages that show it. A database that hangs holds up the next look, on a thread
    of its own, and neither the health nor the end of the process.
    """

    def __init__(self, doors: Doors, health: HealthWatch, parts: PartMaker) -> None:
        self._doors = doors
        self._health = health
        self._parts = parts
        self._seats: set[Seat] = set()
        self._by_key: Counter[str] = Counter()
        self._looking: asyncio.Task[None] | None = None
        self._telling: asyncio.Task[None] | None = None
        self._events: dict[tuple[str, str], str] = {}

    @property
    def is_closed(self) -> bool:
        """Whether the process is to stop: every stream ends then."""
        return self._doors.watch.is_closed

    @contextmanager
    def seat(self, seat: Seat, key_id: str) -> Iterator[None]:
        """Keep a page true as long as this lasts.

        Raises:
            Problem: this key, or all together, have as many pages open as they may.
        """
        self._check_seats(key_id)
        self._by_key[key_id] += 1
        self._seats.add(seat)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_on())
        try:
            yield
        finally:
            self._by_key[key_id] -= 1
            self._by_key += Counter()  # those that have none open are forgotten
            self._seats.discard(seat)

    def _check_seats(self, key_id: str) -> None:
        if self._by_key[key_id] >= WATCHERS_PER_KEY_MAX:
            detail = f"a key may keep {WATCHERS_PER_KEY_MAX} pages live at a time; close one"
            raise Problem(TOO_MANY_STREAMS, detail, headers={"retry-after": "5"})
        if self.is_closed or len(self._seats) >= WATCHERS_MAX:
            raise Problem(BUSY, "all places of this server are taken", headers={"retry-after": "5"})

    async def _look_on(self) -> None:
        try:
            while self._seats and not self.is_closed:
                await self._tick()
                await asyncio.sleep(TICK_S)
        finally:
            self._looking = None
            for seat in self._seats:
                seat.woken.set()

    async def _tick(self) -> None:
        """Tell of the health; and of what changed, unless the look before that hangs still."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.create_task(self._tell_what_changed())
        self._tell_health(list(self._seats), await self._health.read())
        await asyncio.wait([self._telling], timeout=TICK_S)

    async def _tell_what_changed(self) -> None:
        seats = list(self._seats)
        try:
            look = await on_own_thread(partial(self._look, seats))
            self._tell_counts(seats, look)
            await self._tell_replays(seats, look.replays)
        except StoreError:
            pass  # the health says so, and the database may be back at the next tick
        except Exception:
            LOGGER.exception("open pages were not told of a change")

    def _look(self, seats: list[Seat]) -> _Look:
        store = self._doors.store
        ids = sorted(set[str]().union(*(seat.replay_ids for seat in seats)))
        found: dict[str, Replay] = {}
        for start in range(0, len(ids), IDS_AT_A_TIME):
            found |= store.replays_by_id(ids[start : start + IDS_AT_A_TIME])
        replays = {each: (replay, event_id(replay)) for each, replay in found.items()}
        scopes = {(seat.account, seat.jobs) for seat in seats if COUNTERS in seat.seen}
        counts = {
            scope: dict(store.count_by_state(scope[1], of_account=scope[0])) for scope in scopes
        }
        return _Look(replays, counts)

    def _tell_health(self, seats: list[Seat], health: Health) -> None:
        parts = self._parts.health(health)
        self._tell(seats, HEALTH, parts)

    def _tell_counts(self, seats: list[Seat], look: _Look) -> None:
        for (account, jobs), counts in look.counts.items():
            parts = self._parts.counters(counts)
            ours = [seat for seat in seats if (seat.account, seat.jobs) == (account, jobs)]
            self._tell(ours, COUNTERS, parts)

    async def _tell_replays(
        self, seats: list[Seat], replays: dict[str, tuple[Replay, str]]
    ) -> None:
        events: dict[tuple[str, str], str] = {}
        for seat in seats:
            for thing in list(seat.seen):
                replay, version = replays.get(thing.removeprefix(JOB_PREFIX), (None, ""))
                if replay is None or seat.account not in (None, replay.account_id):
                    continue
                if seat.shows_otherwise(thing, version):
                    event = await self._event(events, thing, version, replay)
                    seat.tell(thing, version, event)
            # Hundreds of pages, each with rows of its own, would hold up all that is served.
            await asyncio.sleep(0)
        self._events = events

    async def _event(
        self, events: dict[tuple[str, str], str], thing: str, version: str, replay: Replay
    ) -> str:
        """The event of a version, made when the first page needs it."""
        event = events.get((thing, version)) or self._events.get((thing, version))
        if event is None:
            if thing.startswith(JOB_PREFIX):
                parts = await on_own_thread(partial(self._parts.job, replay))
            else:
                parts = self._parts.row(replay)
            event = Change(thing, version, parts).encode()
        events[thing, version] = event
        return event

    def _tell(self, seats: Iterable[Seat], thing: str, parts: dict[str, str]) -> None:
        version = sha256("\0".join(parts.values()).encode()).hexdigest()[:16]
        event = None
        for seat in seats:
            if seat.shows_otherwise(thing, version):
                event = event or Change(thing, version, parts).encode()
                seat.tell(thing, version, event)
