"""The memory of requests that are being received, over all connections."""

from collections.abc import Iterable
from typing import Final, Protocol

from logbroker.wire.memory_budget import MemoryBudget
from logbroker.wire.receive_buffer import ReceiveBuffer

STALLED_S: Final = 10.0
"""After this time without a received byte, a request that others wait for loses its connection."""


class Receiver(Protocol):
    """A connection that receives requests."""

    buffer: ReceiveBuffer
    last_active_s: float

    def resume_receiving(self) -> None:
        """Try again to let a starved buffer grow, and receive if it did."""

    def close(self, reason: str | None = None) -> None:
        """Close the connection, whose buffer gives its memory back."""


class RequestMemory:
    """A budget for receive buffers, and the connections that wait because it is used up.

    A waiting connection is not read; TCP slows its client down. Connections that hold memory
    without receiving anything are closed while others wait, so that half a request cannot keep
    the memory for ever.
    """

    def __init__(self, bytes_max: int) -> None:
        self.budget = MemoryBudget(bytes_max)
        self._waiting: dict[Receiver, None] = {}

    @property
    def is_short(self) -> bool:
        """Whether a connection waits for memory."""
        return bool(self._waiting)

    def add_waiting(self, connection: Receiver) -> None:
        """Resume `connection` once there is memory for its buffer."""
        self._waiting[connection] = None

    def remove_waiting(self, connection: Receiver) -> None:
        """Forget a connection that was closed."""
        self._waiting.pop(connection, None)

    def resume_waiting(self) -> None:
        """Resume the connections whose buffers can grow now, the longest waiting first."""
        for connection in list(self._waiting):
            connection.resume_receiving()
            if not connection.buffer.is_starved:
                self._waiting.pop(connection, None)

    def close_stalled(self, connections: Iterable[Receiver], now_s: float) -> None:
        """Close the largest holder that receives nothing, if a connection waits for memory.

        A waiting connection is closed only if every holder waits, since then none can continue.
        """
        if not self._waiting:
            return
        holders = [each for each in connections if each.buffer.has_grown]
        stalled = [each for each in holders if each.last_active_s < now_s - STALLED_S]
        idle = [each for each in stalled if each not in self._waiting]
        if not idle and any(each not in self._waiting for each in holders):
            return
        largest = max(idle or stalled, key=lambda each: len(each.buffer), default=None)
        if largest is not None:
            largest.close("no byte received while request memory is used up")
