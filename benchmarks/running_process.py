"""A server of this project in a separate process; its output is printed if a benchmark fails."""

import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import psutil

from benchmarks.running_broker import LINES_KEPT
from logbroker.embedded import ChildProcess


class RunningProcess(NamedTuple):
    """A process that is ready, and its address if the ready line contains one."""

    process: psutil.Process
    address: str


@contextmanager
def running_process(
    arguments: Sequence[str], ready_prefix: str, environment: Mapping[str, str] | None = None
) -> Iterator[RunningProcess]:
    """Run `python ARGUMENTS`, wait for its ready line, and stop it cleanly at the end."""
    output: deque[str] = deque(maxlen=LINES_KEPT)
    child = ChildProcess(arguments, ready_prefix, environment, output.append)
    address = child.start()
    try:
        yield RunningProcess(psutil.Process(child.pid), address)
    except BaseException:
        sys.stderr.writelines(output)
        raise
    finally:
        child.stop()
