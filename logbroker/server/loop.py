"""The socket loop: one thread that waits for sockets, timers and other threads' results.

A turn is: handle every socket that is ready, run what other threads and timers brought,
then call the turn's end, where everything that the turn gathered is written at once.
Gathering over a turn is what makes small batches cheap: one `writev` for each partition
and one `send` for each connection, however many requests came in.
"""

import contextlib
import heapq
import itertools
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Final

WAKES_PER_TURN: Final = 64 * 1024

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

TIMERS_MIN: Final = 1024
"""So few timers are not worth looking for cancelled ones among them."""


class Timer:
    """A call that is due at a time of the monotonic clock, and may be cancelled before."""

    __slots__ = ("call", "when_s")

    def __init__(self, when_s: float, call: Callable[[], None]) -> None:
        self.when_s = when_s
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Never call; cancelling twice, or after the call, does nothing."""
        self.call = None


class SocketLoop:
    """One selector with timers and an inbox for other threads.

    All methods but `call_soon` belong to the thread that runs the loop.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timers_max = TIMERS_MIN
        """At so many the cancelled ones are dropped; twice what was left the last time."""
        self._sequence = itertools.count()
        self._inbox: deque[Callable[[], None]] = deque()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._is_running = False
        self._on_turn_end: Callable[[], None] = lambda: None
        self.now_s = time.monotonic()
        self.now_ms = int(time.time() * 1000)
        self.register(self._wake_receiver, READ, self._drain_wake)

    def run(self, on_turn_end: Callable[[], None]) -> None:
        """Turn until `stop`; `on_turn_end` closes each turn."""
        self._on_turn_end = on_turn_end
        self._is_running = True
        while self._is_running:
            self._turn()

    def stop(self) -> None:
        """Leave `run` at the end of this turn."""
        self._is_running = False

    def close(self) -> None:
        """Release the selector and the wake-up pair; registered sockets stay their owners'."""
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run `call` on the loop's thread, in this turn or the next; any thread may ask."""
        self._inbox.append(call)
        # A full pipe already wakes the loop; a closed one has no loop to wake.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_sender.send(b"\0")

    def call_at(self, when_s: float, call: Callable[[], None]) -> Timer:
        """Run `call` once the monotonic clock has reached `when_s`."""
        timer = Timer(when_s, call)
        if len(self._timers) >= self._timers_max:
            self._drop_cancelled()
        heapq.heappush(self._timers, (when_s, next(self._sequence), timer))
        return timer

    def call_every(self, period_s: float, call: Callable[[], None]) -> None:
        """Run `call` now and again, `period_s` after its last end, as long as the loop runs."""

        def again() -> None:
            call()
            self.call_at(time.monotonic() + period_s, again)

        self.call_at(self.now_s + period_s, again)

    def register(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` in each turn in which `sock` is ready for some of `events`."""
        self._selector.register(sock, events, ready)

    def modify(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Wait for other events on `sock`; none at all takes it out of the selector."""
        if events == 0:
            self._selector.unregister(sock)
        elif sock in self._selector.get_map():
            self._selector.modify(sock, events, ready)
        else:
            self._selector.register(sock, events, ready)

    def unregister(self, sock: socket.socket) -> None:
        """Stop waiting for `sock`, whether or not the loop still does."""
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(sock)

    def _turn(self) -> None:
        ready = self._selector.select(self._wait_s())
        self.now_s = time.monotonic()
        self.now_ms = int(time.time() * 1000)
        for key, events in ready:
            key.data(events)
        self._run_inbox()
        self._run_timers()
        self._on_turn_end()

    def _wait_s(self) -> float | None:
        if self._inbox:
            return 0.0
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _drop_cancelled(self) -> None:
        """Forget timers that will not run, however far off their times are."""
        self._timers = [entry for entry in self._timers if entry[2].call is not None]
        heapq.heapify(self._timers)
        self._timers_max = max(TIMERS_MIN, 2 * len(self._timers))

    def _run_inbox(self) -> None:
        # Only what is here now: a call that asks for another must not starve the sockets.
        for _ in range(len(self._inbox)):
            self._inbox.popleft()()

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_s:
            call = heapq.heappop(self._timers)[2].call
            if call is not None:
                call()

    def _drain_wake(self, _events: int) -> None:
        # What does not fit here makes the socket ready again in the next turn.
        self._wake_receiver.recv(WAKES_PER_TURN)
