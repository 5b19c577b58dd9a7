"""A server of ours in a process of its own, told of by its last words if a measurement fails."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psutil

from benchmarks.running_broker import LINES_KEPT
from logbroker.embedded import ChildProcess


class RunningProcess(NamedTuple):
    """A process that is ready; `address` is where it listens, if its ready line says so."""

    process: psutil.Process
    address: str


@contextmanager
def running_process(
    arguments: Sequence[str], ready_prefix: str, environment: Mapping[str, str] | None = None
) -> Iterator[RunningProcess]:
    """`python ARGUMENTS` once its ready line has come; stopped cleanly at the end."""
    heard: deque[str] = deque(maxlen=LINES_KEPT)
    child = ChildProcess(arguments, ready_prefix, environment, heard.append)
    address = child.start()
    try:
        yield RunningProcess(psutil.Process(child.pid), address)
    except BaseException:
        sys.stderr.writelines(heard)
        raise
    finally:
        child.stop()
