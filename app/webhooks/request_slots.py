"""Slots for the requests to one origin, so that a receiver that hangs delays no other one there.

One host may serve many webhooks, such as that of an automation service. Each URL always has one
slot of its own. Further requests take one of the shared slots, in order of arrival; those of a URL
whose last request got no response do not, until one is answered.
"""

import asyncio
from collections import deque

_Waiter = asyncio.Future[None]


class _Url:
    """The requests of one URL: `held` slots, of which the first is its own."""

    __slots__ = ("held", "is_silent", "waiters")

    def __init__(self) -> None:
        self.held = 0
        self.is_silent = False
        self.waiters: deque[_Waiter] = deque()

    def next_waiter(self) -> _Waiter | None:
        """The oldest request that still waits, which no longer does."""
        while self.waiters:
            waiter = self.waiters.popleft()
            if not waiter.done():
                return waiter
        return None


class RequestSlots:
    """The slots of one origin: one for each URL, and `shared` ones. For one event loop."""

    def __init__(self, shared: int) -> None:
        self._free = shared
        self._urls: dict[str, _Url] = {}
        self._waiting: deque[_Url] = deque()
        """The URL of each request that waits for a shared slot, and of some that no longer do."""

    def try_acquire(self, name: str) -> bool:
        """Take a slot for a request to the URL `name`, if there is one."""
        url = self._urls.get(name)
        if url is None:
            url = self._urls[name] = _Url()
        if url.held:
            if url.is_silent or not self._free:
                return False
            self._free -= 1
        url.held += 1
        return True

    async def acquire(self, name: str) -> None:
        """Wait for a slot, after `try_acquire` has found none."""
        url = self._urls[name]
        waiter = asyncio.get_running_loop().create_future()
        url.waiters.append(waiter)
        if not url.is_silent:
            self._waiting.append(url)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.release(name, None)
            raise

    def release(self, name: str, is_answered: bool | None) -> None:
        """Return a slot; `is_answered` says whether there was a response, None if it is unknown."""
        url = self._urls[name]
        url.held -= 1
        if is_answered is not None and url.is_silent is is_answered:
            url.is_silent = not is_answered
            if is_answered:
                self._waiting.extend([url] * len(url.waiters))
        if url.held:
            self._free += 1
        elif (waiter := url.next_waiter()) is not None:
            _grant(url, waiter)
        elif not url.is_silent:
            del self._urls[name]
        self._grant_shared()

    def _grant_shared(self) -> None:
        while self._free and self._waiting:
            url = self._waiting.popleft()
            if not url.is_silent and (waiter := url.next_waiter()) is not None:
                self._free -= 1
                _grant(url, waiter)


def _grant(url: _Url, waiter: _Waiter) -> None:
    url.held += 1
    waiter.set_result(None)
