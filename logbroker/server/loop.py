"""The event loop: one thread that waits for sockets, timers and results of other threads.

A turn handles every ready socket, then runs queued calls and due timers, then calls the turn's
end, which writes all staged batches. Batching over a turn makes small requests cheap: one
`pwritev` per partition and one `send` per connection, for any number of requests.
"""

import contextlib
import heapq
import itertools
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

WAKES_PER_TURN: Final = 64 * 1024

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

TIMERS_MIN: Final = 1024
"""Below this number, cancelled timers are not removed early."""


class Timer:
    """A call at a time of the monotonic clock, which can be cancelled."""

    __slots__ = ("call", "when_s")

    def __init__(self, when_s: float, call: Callable[[], None]) -> None:
        self.when_s = when_s
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel the call; has no effect if cancelled twice or after the call."""
        self.call = None


class SocketLoop:
    """A selector with timers and an inbox for other threads.

    Only `call_soon` may be called on other threads.
    """

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._timers_max = TIMERS_MIN
        """At this number, cancelled timers are removed; twice the number left the last time."""
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
        """Run turns until `stop`, each followed by `on_turn_end`."""
        self._on_turn_end = on_turn_end
        self._is_running = True
        while self._is_running:
            self._turn()

    def stop(self) -> None:
        """Return from `run` at the end of the turn."""
        self._is_running = False

    def close(self) -> None:
        """Close the selector and the wake-up socket pair, not the registered sockets."""
        self._selector.close()
        self._wake_receiver.close()
        self._wake_sender.close()

    def call_soon(self, call: Callable[[], None]) -> None:
        """Run `call` on the loop's thread, in this turn or the next; safe on any thread."""
        self._inbox.append(call)
        # A full socket buffer already wakes the loop; after `close` there is no loop to wake.
        with contextlib.suppress(BlockingIOError, OSError):
            self._wake_sender.send(b"\0")

    def run_parts(self, parts: Iterator[None], done: Callable[[], None]) -> None:
        """Run long work up to its first `yield` now, a further part per turn, and then `done`."""
        if next(parts, True) is None:
            self.call_soon(lambda: self.run_parts(parts, done))
        else:
            done()

    def call_at(self, when_s: float, call: Callable[[], None]) -> Timer:
        """Run `call` once the monotonic clock has reached `when_s`."""
        timer = Timer(when_s, call)
        if len(self._timers) >= self._timers_max:
            self._drop_cancelled()
        heapq.heappush(self._timers, (when_s, next(self._sequence), timer))
        return timer

    def call_every(self, period_s: float, call: Callable[[], None]) -> None:
        """Run `call` repeatedly, `period_s` after the end of its previous run."""

        def again() -> None:
            call()
            self.call_at(time.monotonic() + period_s, again)

        self.call_at(self.now_s + period_s, again)

    def register(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` in each turn in which `sock` is ready for any of `events`."""
        self._selector.register(sock, events, ready)

    def modify(self, sock: socket.socket, events: int, ready: Callable[[int], None]) -> None:
        """Change the events of `sock`; with no event it is removed from the selector."""
        if events == 0:
            self._selector.unregister(sock)
        elif sock in self._selector.get_map():
            self._selector.modify(sock, events, ready)
        else:
            self._selector.register(sock, events, ready)

    def unregister(self, sock: socket.socket) -> None:
        """Remove `sock` from the selector, if it is registered."""
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
        """Remove cancelled timers that are not due yet."""
        self._timers = [entry for entry in self._timers if entry[2].call is not None]
        heapq.heapify(self._timers)
        self._timers_max = max(TIMERS_MIN, 2 * len(self._timers))

    def _run_inbox(self) -> None:
        # Only the calls queued before: a call that queues another must not starve the sockets.
        for _ in range(len(self._inbox)):
            self._inbox.popleft()()

    def _run_timers(self) -> None:
        while self._timers and self._timers[0][0] <= self.now_s:
            call = heapq.heappop(self._timers)[2].call
            if call is not None:
                call()

    def _drain_wake(self, _events: int) -> None:
        # Bytes that are left make the socket ready again in the next turn.
        self._wake_receiver.recv(WAKES_PER_TURN)
