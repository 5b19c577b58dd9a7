"""`python -m tests.stress COMMAND...`: run a command, for example `make test`, under stress.

One process takes a core for as long as the command runs. Every few seconds a random descendant of
the command, or all of them, is stopped for one to three seconds, as happens on a machine that
swaps, migrates or suspends. The exit code is the command's. A test that fails only here is a
defect of the test or of the product, with one exception: a test that stops a process with SIGSTOP
itself may find it continued, when this program stopped the same one before.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

PAUSE_S: Final = (2.0, 8.0)
"""Between two stops, drawn evenly."""

STOP_S: Final = (1.0, 3.0)
"""The length of a stop, drawn evenly."""

ALL_SHARE: Final = 0.2
"""How many of the stops are of all processes at once."""


def running_descendants(root: int) -> list[int]:
    """Ids of all processes below `root` that are not stopped already."""
    children: dict[int, list[int]] = defaultdict(list)
    stopped: set[int] = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with suppress(OSError):
            # Behind the name in parentheses, which may hold anything: state, parent, ...
            state, parent, *_ = (entry / "stat").read_bytes().rpartition(b") ")[2].split()
            children[int(parent)].append(int(entry.name))
            if state in b"TtZ":
                stopped.add(int(entry.name))
    found, waiting = [], list(children[root])
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children[pid]
    return [pid for pid in found if pid not in stopped]


def stop(pids: Collection[int], seconds: float) -> None:
    """Stop processes, and continue them after some time."""
    try:
        _signal(pids, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        _signal(pids, signal.SIGCONT)


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def main(command: list[str]) -> int:
    """Run the command under stress: its exit code."""
    if not command:
        sys.exit(__doc__)
    load = subprocess.Popen([sys.executable, "-m", "tests.stress.busy_core"])
    stops = 0
    with subprocess.Popen(command) as process:
        while True:
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(random.uniform(*PAUSE_S))
                break
            pids = running_descendants(process.pid)
            if pids:
                everyone = random.random() < ALL_SHARE
                stop(pids if everyone else [random.choice(pids)], random.uniform(*STOP_S))
                stops += 1
    if load.poll() is not None:
        sys.exit("tests.stress: the process that takes a core has ended")
    load.kill()
    load.wait()
    print(f"tests.stress: {stops} stops, exit code {code}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
