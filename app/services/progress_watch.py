"""Polling of replays for clients that stream their progress."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final

from anyio import CapacityLimiter, to_thread

from app.domain.model import Replay
from app.domain.states import TERMINAL
from app.services.errors import NoStreamsLeft, TooManyStreams
from app.store import Store
from app.store.errors import NotFound, StoreUnavailable

_log: Final = logging.getLogger("rewind.api")

POLL_S: Final = 0.5

STREAMS_MAX: Final = 500
"""Each costs a connection and some 50 kB; each polled replay costs two queries a second."""

STREAMS_PER_KEY_MAX: Final = 20
"""So that one API key cannot use all streams."""

RETRY_AFTER_S: Final = 5

_THREADS: Final = 4
"""Of their own: a database that hangs must not block the threads of the routes."""


class PolledReplay:
    """The last state of a replay. `changed` is set, once, at the next change."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.changed = asyncio.Event()
        self.is_stopped = False
        self.streams = 0

    def update(self, replay: Replay) -> None:
        """Store the latest state, and wake the streams if it differs."""
        if replay != self.replay:
            self.replay = replay
            self._wake()

    def stop(self) -> None:
        """Wake the streams: there are no further updates."""
        self.is_stopped = True
        self._wake()

    def _wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()


class ProgressWatch:
    """Polls each streamed replay every `POLL_S`, once for all its streams. For one event loop."""

    def __init__(
        self,
        store: Store,
        *,
        streams_max: int = STREAMS_MAX,
        streams_per_key_max: int = STREAMS_PER_KEY_MAX,
    ) -> None:
        self._store = store
        self._streams_max = streams_max
        self._streams_per_key_max = streams_per_key_max
        self._polled: dict[str, PolledReplay] = {}
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._by_key: Counter[str] = Counter()
        self._limiter = CapacityLimiter(_THREADS)
        self._is_closed = False

    def close(self) -> None:
        """End all streams, and refuse new ones."""
        self._is_closed = True
        for polled in self._polled.values():
            polled.stop()

    @property
    def is_closed(self) -> bool:
        """Whether the process is stopping."""
        return self._is_closed

    @contextmanager
    def stream(self, replay: Replay, key_id: str) -> Iterator[PolledReplay]:
        """Poll a replay, which was just read, until the block ends.

        Raises:
            TooManyStreams: the key has as many streams as allowed.
            NoStreamsLeft: this server has as many streams as allowed, or is stopping.
        """
        self._check_limits(key_id)
        polled = self._join(replay)
        self._by_key[key_id] += 1
        try:
            yield polled
        finally:
            self._by_key[key_id] -= 1
            self._by_key += Counter()  # drops keys without streams
            self._leave(polled)

    def _check_limits(self, key_id: str) -> None:
        if self._by_key[key_id] >= self._streams_per_key_max:
            detail = f"limit: {self._streams_per_key_max} streams per API key; close one"
            raise TooManyStreams(detail, retry_after_s=RETRY_AFTER_S)
        if self._is_closed or self._by_key.total() >= self._streams_max:
            detail = "this server has as many streams as allowed"
            raise NoStreamsLeft(detail, retry_after_s=RETRY_AFTER_S)

    def _join(self, replay: Replay) -> PolledReplay:
        polled = self._polled.get(replay.id)
        if polled is None:
            polled = self._polled[replay.id] = PolledReplay(replay)
            self._polls[replay.id] = asyncio.create_task(self._poll(polled))
        polled.streams += 1
        return polled

    def _leave(self, polled: PolledReplay) -> None:
        polled.streams -= 1
        if not polled.streams:
            del self._polled[polled.replay.id]
            self._polls.pop(polled.replay.id).cancel()

    async def _poll(self, polled: PolledReplay) -> None:
        """Poll until the replay is over. However this ends, the streams are woken."""
        try:
            while polled.replay.state not in TERMINAL:
                await asyncio.sleep(POLL_S)
                await self._read(polled)
        except NotFound:
            pass  # an operator has deleted its row
        except Exception:
            _log.exception("polling of a replay failed")
        finally:
            polled.stop()

    async def _read(self, polled: PolledReplay) -> None:
        try:
            replay = await to_thread.run_sync(
                self._store.replay, polled.replay.id, limiter=self._limiter
            )
        except StoreUnavailable:
            return  # it may be back at the next poll
        polled.update(replay)


def version_of(replay: Replay) -> str:
    """A digest of a replay's state: equal on every server until the state changes."""
    return sha256(repr(replay).encode()).hexdigest()[:16]
