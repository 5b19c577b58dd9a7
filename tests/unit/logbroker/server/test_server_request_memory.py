"""Connections wait for request memory, and those that keep it without need are closed."""

from logbroker.server.request_memory import STALLED_S, RequestMemory
from logbroker.wire.receive_buffer import INITIAL_BYTES, ReceiveBuffer

FRAME_BYTES = 2**20
NOW_S = 1_000.0


class ReceivingConnection:
    """A connection that has received part of one Produce request."""

    def __init__(self, memory: RequestMemory, last_active_s: float = NOW_S) -> None:
        self.buffer = ReceiveBuffer(frame_bytes_max=FRAME_BYTES, budget=memory.budget)
        self.last_active_s = last_active_s
        self.closed: str | None = None
        self._memory = memory
        self._rest = FRAME_BYTES.to_bytes(4, "big") + bytes(FRAME_BYTES)

    def receive(self, count: int) -> None:
        while count and not self.buffer.is_starved:
            space = self.buffer.free_space()[:count]
            space[:], self._rest = self._rest[: len(space)], self._rest[len(space) :]
            self.buffer.add_received(len(space))
            self.buffer.pop_frames()
            self.buffer.compact()
            count -= len(space)
        if self.buffer.is_starved:
            self._memory.add_waiting(self)

    def resume_receiving(self) -> None:
        self.buffer.compact()

    def close(self, reason: str | None = None) -> None:
        self.closed = reason or ""
        self._memory.remove_waiting(self)
        self.buffer.release()


def test_a_starved_connection_resumes_when_memory_is_given_back() -> None:
    memory = RequestMemory(FRAME_BYTES)
    first, second = ReceivingConnection(memory), ReceivingConnection(memory)
    first.receive(FRAME_BYTES // 2)
    second.receive(FRAME_BYTES // 2)
    assert memory.is_short
    memory.resume_waiting()
    assert second.buffer.is_starved, "nothing was given back"
    first.close()
    memory.resume_waiting()
    assert not second.buffer.is_starved
    assert not memory.is_short


def test_a_holder_that_sends_nothing_is_closed_only_while_others_wait() -> None:
    memory = RequestMemory(FRAME_BYTES)
    silent = ReceivingConnection(memory, NOW_S - STALLED_S - 1)
    silent.receive(FRAME_BYTES // 2)
    memory.close_stalled([silent], NOW_S)
    assert silent.closed is None
    waiting = ReceivingConnection(memory)
    waiting.receive(FRAME_BYTES // 2)
    memory.close_stalled([silent, waiting], NOW_S)
    assert silent.closed == "no byte received while request memory is used up"
    assert waiting.closed is None


def test_a_waiting_connection_is_not_closed_while_another_holder_receives() -> None:
    memory = RequestMemory(FRAME_BYTES)
    active = ReceivingConnection(memory)
    active.receive(FRAME_BYTES // 2)
    waiting = ReceivingConnection(memory, NOW_S - STALLED_S - 1)
    waiting.receive(FRAME_BYTES // 2)
    memory.close_stalled([active, waiting], NOW_S)
    assert (active.closed, waiting.closed) == (None, None)


def test_if_every_holder_waits_the_largest_is_closed() -> None:
    memory = RequestMemory(300 * 1024)
    late_s = NOW_S - STALLED_S - 1
    small, large = ReceivingConnection(memory, late_s), ReceivingConnection(memory, late_s)
    small.receive(INITIAL_BYTES + 1)
    large.receive(FRAME_BYTES)
    small.receive(FRAME_BYTES)
    assert small.buffer.is_starved
    assert large.buffer.is_starved
    memory.close_stalled([small, large], NOW_S)
    assert (small.closed is None, large.closed is None) == (True, False)
    memory.resume_waiting()
    assert not small.buffer.is_starved
