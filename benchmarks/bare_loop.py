"""Runs the loop of a baseline in a separate process."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Final, TypeVar

STOP_S: Final = 10.0

Task = TypeVar("Task")


@contextmanager
def running_loop(serve: Callable[[Connection, Task], None], task: Task) -> Iterator[int]:
    """Run `serve` on its task until it reports that it is ready; yields its pid, then kills it."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=serve, args=(theirs, task), daemon=True)
    process.start()
    theirs.close()
    try:
        ours.recv()
        assert process.pid is not None
        yield process.pid
    finally:
        process.kill()
        process.join(STOP_S)
