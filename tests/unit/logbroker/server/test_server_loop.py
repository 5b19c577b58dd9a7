"""Timers, calls of other threads and the end of turns of the event loop."""

import gc
import socket
import threading
from collections.abc import Iterator

import pytest

from logbroker.server.loop import READ, SocketLoop, Timer
from logbroker.server.worker_pool import WorkerPool


@pytest.fixture
def loop() -> Iterator[SocketLoop]:
    made = SocketLoop()
    yield made
    made.close()


def test_timers_run_in_the_order_of_their_times(loop: SocketLoop) -> None:
    seen: list[str] = []

    def end_late() -> None:
        seen.append("late")
        loop.stop()

    loop.call_at(loop.now_s + 0.02, end_late)
    loop.call_at(loop.now_s + 0.01, lambda: seen.append("early"))
    loop.call_at(loop.now_s + 0.015, lambda: seen.append("cancelled")).cancel()

    loop.run(lambda: None)

    assert seen == ["early", "late"]


def test_a_periodic_call_repeats(loop: SocketLoop) -> None:
    calls: list[float] = []

    def count() -> None:
        calls.append(loop.now_s)
        if len(calls) == 3:
            loop.stop()

    loop.call_every(0.001, count)
    loop.run(lambda: None)

    assert len(calls) == 3


def test_another_thread_wakes_the_loop(loop: SocketLoop) -> None:
    ran_on: list[threading.Thread] = []

    def note() -> None:
        ran_on.append(threading.current_thread())
        loop.stop()

    threading.Thread(target=loop.call_soon, args=(note,)).start()
    loop.run(lambda: None)

    assert ran_on == [threading.current_thread()]


def test_a_turn_ends_after_every_ready_socket_was_handled(loop: SocketLoop) -> None:
    pairs = [socket.socketpair() for _ in range(3)]
    seen: list[str] = []
    for number, (near, far) in enumerate(pairs):

        def receive(_: int, near: socket.socket = near, number: int = number) -> None:
            seen.append(f"{number}{near.recv(9)!r}")

        loop.register(near, READ, receive)
        far.send(b"x")

    def end() -> None:
        seen.append("end")
        loop.stop()

    loop.run(end)
    for pair in pairs:
        for one in pair:
            one.close()

    assert sorted(seen[:3]) == ["0b'x'", "1b'x'", "2b'x'"]
    assert seen[3:] == ["end"]


def test_a_socket_without_events_is_left_alone_until_it_has_some(loop: SocketLoop) -> None:
    near, far = socket.socketpair()
    seen: list[bytes] = []

    def ready(_events: int) -> None:
        seen.append(near.recv(9))
        loop.stop()

    loop.register(near, READ, ready)
    loop.modify(near, 0, ready)
    far.send(b"x")
    loop.call_at(loop.now_s + 0.01, loop.stop)
    loop.run(lambda: None)
    assert seen == []

    loop.modify(near, READ, ready)
    loop.run(lambda: None)
    near.close()
    far.close()
    assert seen == [b"x"]


def test_a_worker_pool_returns_results_and_errors_on_the_loop(loop: SocketLoop) -> None:
    pool = WorkerPool(loop, "test", 2)
    returned: list[tuple[object, threading.Thread]] = []

    def done(result: object) -> None:
        returned.append((result, threading.current_thread()))
        if len(returned) == 2:
            loop.stop()

    pool.submit(lambda: 1 + 1, done)
    pool.submit(lambda: 1 // 0, done)
    loop.run(lambda: None)
    pool.close()

    results = [result for result, _ in returned]
    assert 2 in results
    assert any(isinstance(result, ZeroDivisionError) for result in results)
    assert {thread for _, thread in returned} == {threading.current_thread()}


def test_cancelled_timers_are_not_kept_until_their_time(loop: SocketLoop) -> None:
    for _ in range(20_000):
        loop.call_at(loop.now_s + 3600, lambda: None).cancel()
    assert sum(isinstance(found, Timer) for found in gc.get_objects()) < 5_000
