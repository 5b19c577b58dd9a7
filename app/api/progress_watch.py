"""Looks at replays on behalf of all who watch them."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from anyio import CapacityLimiter, to_thread

from app.api.problems import BUSY, TOO_MANY_STREAMS, Problem
from app.domain.model import Replay
from app.domain.states import TERMINAL
from app.store import Store
from app.store.errors import NotFound, StoreUnavailable

LOGGER: Final = logging.getLogger("rewind.api")

TICK_S: Final = 0.5

WATCHERS_MAX: Final = 500
"""Each costs a connection and some 50 kB; each replay watched costs two look-ups a second."""

WATCHERS_PER_KEY_MAX: Final = 20
"""So that one key cannot take all the places."""

_LOOKS_AT_A_TIME: Final = 4
"""Threads that look; a database that hangs must not take those of the routes as well."""


class Watched:
    """A replay as it was last seen. `changed` is set, once, when it is seen to be another."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.changed = asyncio.Event()
        self.is_given_up = False
        self.watchers = 0

    def show(self, replay: Replay) -> None:
        """Take a look at the replay for the latest one."""
        if replay != self.replay:
            self.replay = replay
            self._wake()

    def give_up(self) -> None:
        """Say that nobody looks any more."""
        self.is_given_up = True
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ProgressWatch:
    """Looks at each watched replay every `TICK_S`, once however many watch it.

    For one event loop. Whoever watches has a seat; there are `WATCHERS_MAX` of them.
    """

    def __init__(
        self,
        store: Store,
        *,
        watchers_max: int = WATCHERS_MAX,
        watchers_per_key_max: int = WATCHERS_PER_KEY_MAX,
    ) -> None:
        self._store = store
        self._watchers_max = watchers_max
        self._watchers_per_key_max = watchers_per_key_max
        self._watched: dict[str, Watched] = {}
        self._looks: dict[str, asyncio.Task[None]] = {}
        self._by_key: Counter[str] = Counter()
        self._limiter = CapacityLimiter(_LOOKS_AT_A_TIME)
        self._is_closed = False

    def close(self) -> None:
        """Let go of all who watch, and of all who would."""
        self._is_closed = True
        for watched in self._watched.values():
            watched.give_up()

    @property
    def is_closed(self) -> bool:
        """Whether the process is to stop, and with it every stream."""
        return self._is_closed

    @contextmanager
    def seat(self, replay: Replay, key_id: str) -> Iterator[Watched]:
        """Have a replay, just read, watched as long as this lasts.

        Raises:
            Problem: this key, or all together, watch as many as they may.
        """
        self._check_seats(key_id)
        watched = self._join(replay)
        self._by_key[key_id] += 1
        try:
            yield watched
        finally:
            self._by_key[key_id] -= 1
            self._by_key += Counter()  # those that watch nothing are forgotten
            self._leave(watched)

    def _check_seats(self, key_id: str) -> None:
        if self._by_key[key_id] >= self._watchers_per_key_max:
            detail = f"a key may watch {self._watchers_per_key_max} streams at a time; close one"
            raise Problem(TOO_MANY_STREAMS, detail, headers={"retry-after": "5"})
        if self._is_closed or self._by_key.total() >= self._watchers_max:
            raise Problem(BUSY, "all places of this server are taken", headers={"retry-after": "5"})

    def _join(self, replay: Replay) -> Watched:
        watched = self._watched.get(replay.id)
        if watched is None:
            watched = self._watched[replay.id] = Watched(replay)
            self._looks[replay.id] = asyncio.create_task(self._look_on(watched))
        watched.watchers += 1
        return watched

    def _leave(self, watched: Watched) -> None:
        watched.watchers -= 1
        if not watched.watchers:
            del self._watched[watched.replay.id]
            self._looks.pop(watched.replay.id).cancel()

    async def _look_on(self, watched: Watched) -> None:
        """Look until the replay is over. However this ends, those who watch learn of it."""
        try:
            while watched.replay.state not in TERMINAL:
                await asyncio.sleep(TICK_S)
                await self._look(watched)
        except NotFound:
            pass  # an operator has deleted its row
        except Exception:
            LOGGER.exception("a replay is not watched any more")
        finally:
            watched.give_up()

    async def _look(self, watched: Watched) -> None:
        try:
            replay = await to_thread.run_sync(
                self._store.replay, watched.replay.id, limiter=self._limiter
            )
        except StoreUnavailable:
            return  # it may be back at the next tick
        watched.show(replay)
