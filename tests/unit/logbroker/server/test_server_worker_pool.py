"""Worker pools: every call runs once, in order, whichever threads are idle."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from logbroker.server.loop import SocketLoop
from logbroker.server.worker_pool import WorkerPool

THREADS = 4


class LoopThread:
    """A loop on a thread of its own, and the results that it received."""

    def __init__(self) -> None:
        self.loop = SocketLoop()
        self.results: list[object] = []
        self._has_all = threading.Event()
        self._expected = 0

    def record(self, result: object) -> None:
        """Keep a result; called on the loop's thread."""
        self.results.append(result)
        if len(self.results) == self._expected:
            self._has_all.set()

    def expect(self, count: int) -> None:
        """Let `wait` wait for `count` results; to be called before the first one."""
        self._expected = count

    def wait(self) -> None:
        """Return when all results have arrived."""
        assert self._has_all.wait(30), f"{len(self.results)} of {self._expected} results"


@pytest.fixture
def running() -> Iterator[LoopThread]:
    with _running() as each:
        yield each


@contextmanager
def _running() -> Iterator[LoopThread]:
    each = LoopThread()
    with closing(each.loop):
        thread = threading.Thread(target=each.loop.run, args=(lambda: None,))
        thread.start()
        yield each
        each.loop.call_soon(each.loop.stop)
        thread.join()


def test_every_call_runs_once_while_threads_become_idle_and_busy(running: LoopThread) -> None:
    count, submitters = 4_000, 4
    running.expect(count * submitters)
    with closing(WorkerPool(running.loop, "test", THREADS)) as pool:

        def submit_all(first: int) -> None:
            for number in range(first, first + count):
                pool.submit(partial(int, number), running.record)

        threads = [
            threading.Thread(target=submit_all, args=(each * count,)) for each in range(submitters)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        running.wait()
    assert set(running.results) == set(range(count * submitters))


def test_one_thread_runs_calls_in_the_order_of_submission(running: LoopThread) -> None:
    running.expect(1_000)
    ran: list[int] = []
    with closing(WorkerPool(running.loop, "test", 1)) as pool:
        for number in range(1_000):
            pool.submit(partial(ran.append, number), running.record)
        running.wait()
    assert ran == list(range(1_000))


def test_close_runs_what_was_submitted(running: LoopThread) -> None:
    running.expect(1_000)
    pool = WorkerPool(running.loop, "test", THREADS)
    for number in range(1_000):
        pool.submit(partial(int, number), running.record)
    pool.close()
    running.wait()
