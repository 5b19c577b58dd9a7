"""Measures the CPU of `rewind up` while nothing happens, in % of a core, by process.

The whole service runs with its embedded broker and SQLite, in a new folder and without events. The
measurement starts when all processes are ready and `SETTLE_S` have passed. Switches are how often a
process was woken: each costs some tens of microseconds, however little is done then.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NamedTuple

import psutil

from benchmarks.running_broker import cpu_s, until
from benchmarks.scale import Scale
from benchmarks.table import Line, at_most
from logbroker.embedded import STOP_S, inherited_environment

SETTLE_S: Final = 15.0
"""By then the work of the start is over, and the API has looked for new records of its event index.

Its first sample of the log, a minute after the start, is in a measurement of a minute.
"""

IDLE_PERCENT_MAX: Final = 0.5

READY: Final = "rewind ready on "
SUPERVISOR: Final = "rewind up"
_NAMES: Final = {
    "serve": "logbroker serve",
    "api": "rewind api",
    "live": "rewind live",
    "worker": "rewind worker",
}
"""The name of a process, by an argument of its command line."""


class IdleProcess(NamedTuple):
    """What a process used while it was idle: % of a core, and switches per second."""

    name: str
    percent: float
    switches_per_s: float


def measure(scale: Scale, folder: Path) -> list[Line]:
    """Measure all processes over the same seconds; once, since they vary little."""
    with _service(folder) as processes:
        time.sleep(SETTLE_S)
        return _lines(idle_processes(processes, scale.idle_s))


def idle_processes(processes: Sequence[psutil.Process], seconds: float) -> list[IdleProcess]:
    """Return what each process uses during the next seconds."""
    start_s = time.monotonic()
    before = [(cpu_s(each), _switches(each)) for each in processes]
    time.sleep(seconds)
    after = [(cpu_s(each), _switches(each)) for each in processes]
    elapsed_s = time.monotonic() - start_s
    return [
        IdleProcess(
            _name(process),
            (spent_s - spent_before_s) / elapsed_s * 100,
            sum((switches - switches_before).values()) / elapsed_s,
        )
        for process, (spent_before_s, switches_before), (spent_s, switches) in zip(
            processes, before, after, strict=True
        )
    ]


@contextmanager
def _service(folder: Path) -> Iterator[list[psutil.Process]]:
    """Run `rewind up`; yields its process and those that it started."""
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        output = Path(scratch, "output")
        arguments = ("--data-dir", str(Path(scratch, "data")), "--port", "0", "--broker-port", "0")
        with output.open("wb") as written:
            service = subprocess.Popen(
                [sys.executable, "-m", "app", "up", *arguments],
                stderr=written,
                env=inherited_environment(os.environ),
            )
        try:
            until(
                lambda: READY in output.read_text() or service.poll() is not None,
                "the service is ready",
                period_s=0.1,
            )
            parent = psutil.Process(service.pid)
            yield [parent, *parent.children()]
        except BaseException:
            sys.stderr.write(output.read_text())
            raise
        finally:
            service.terminate()
            service.wait(STOP_S)


def _switches(process: psutil.Process) -> Counter[str]:
    """Return the voluntary switches of each thread that exists.

    A difference of two of these leaves out threads that have ended.
    """
    found = Counter[str]()
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # the thread has ended
            for line in (task / "status").read_text().splitlines():
                if line.startswith("voluntary_ctxt_switches:"):
                    found[task.name] = int(line.split()[1])
    return found


def _name(process: psutil.Process) -> str:
    arguments = process.cmdline()
    return next((name for word, name in _NAMES.items() if word in arguments), SUPERVISOR)


def _lines(measured: Sequence[IdleProcess]) -> list[Line]:
    lines = []
    for each in measured:
        lines.append(Line(each.name, each.percent, "% of core"))
        lines.append(Line("  voluntary context switches", each.switches_per_s, "/s"))
    total = sum(each.percent for each in measured)
    return [*lines, Line("all processes", total, "% of core", target=at_most(IDLE_PERCENT_MAX))]
