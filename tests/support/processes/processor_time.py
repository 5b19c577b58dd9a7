"""`pytest --processor-time=FILE`: processor time by test and fixture, child processes included.

FILE gets one line of tab-separated values for each: `test` or `fixture`, its name, how often it
ran, and seconds of processor. A fixture's time is that of its set-up, without the fixtures that it
depends on. What a child process uses counts for the test that runs meanwhile. The terminal shows
the total of each folder.
"""

import os
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

OWN_ONLY_BELOW_S: Final = 0.005
"""Phases up to this length start no process, so children are not measured."""

TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")

Times = dict[tuple[str, str], tuple[int, float]]
"""Counts and seconds by kind and name."""


def children_time_s() -> float:
    """Return the processor seconds of all descendants of this process, also of reaped ones."""
    found, waiting = 0, children_of(os.getpid())
    while waiting:
        pid = waiting.pop()
        with suppress(OSError):
            # The fields after the name in parentheses: state, parent, ...
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
            found += sum(map(int, fields[11:15]))
            waiting += children_of(pid)
    reaped = os.times()
    return found * TICK_S + reaped.children_user + reaped.children_system


def children_of(pid: int) -> list[int]:
    """Return the child processes of a process, whichever of its threads started them."""
    found: list[int] = []
    for thread in os.scandir(f"/proc/{pid}/task"):
        with suppress(OSError):
            found += map(int, Path(thread.path, "children").read_bytes().split())
    return found


class ProcessorTime:
    """The processor time of this process's tests and fixtures."""

    def __init__(self) -> None:
        self.times: Times = {}
        self._children_s = 0.0
        self._children_seen_s = 0.0
        self._nested_s = [0.0]

    @contextmanager
    def _measured(self, kind: str, name: str) -> Generator[None]:
        start_s, start_own_s = time.monotonic(), time.process_time()
        start_children_s = self._children_s
        self._nested_s.append(0.0)
        try:
            yield
        finally:
            if time.monotonic() - start_s >= OWN_ONLY_BELOW_S:
                self._read_children()
            spent_s = time.process_time() - start_own_s + self._children_s - start_children_s
            own_s = spent_s - self._nested_s.pop()
            self._nested_s[-1] += spent_s
            count, total_s = self.times.get((kind, name), (0, 0.0))
            self.times[kind, name] = (count + 1, total_s + own_s)

    def _read_children(self) -> None:
        # A decrease: init reaped an orphan, whose time is lost.
        before_s, self._children_seen_s = self._children_seen_s, children_time_s()
        self._children_s += max(0.0, self._children_seen_s - before_s)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        with self._measured("test", item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        with self._measured("fixture", f"{fixturedef.baseid}::{fixturedef.argname}"):
            return (yield)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the figures to the parent process."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["processor_time"] = [[*key, *value] for key, value in self.times.items()]


class Summary:
    """Sums the figures of all processes of a run and writes the report."""

    def __init__(self, file: Path, own: ProcessorTime) -> None:
        self._file = file
        self._own = own
        self._received: list[Mapping[str, Any]] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._received.append(getattr(node, "workeroutput", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        rows: list[Any] = [[*key, *value] for key, value in self._own.times.items()]
        rows += [row for each in self._received for row in each.get("processor_time", [])]
        totals: Times = {}
        for kind, name, count, seconds in rows:
            before, before_s = totals.get((kind, name), (0, 0.0))
            totals[kind, name] = (before + count, before_s + seconds)
        ordered = sorted(totals.items(), key=lambda item: -item[1][1])
        self._file.write_text(
            "".join(f"{kind}\t{name}\t{n}\t{s:.3f}\n" for (kind, name), (n, s) in ordered)
        )
        self._write_folders(terminalreporter, totals)

    def _write_folders(self, reporter: pytest.TerminalReporter, totals: Times) -> None:
        folders: defaultdict[str, float] = defaultdict(float)
        for (kind, name), (_, seconds) in totals.items():
            folder = name.partition("::")[0].rpartition("/")[0] or "(conftest)"
            folders[f"{folder} ({kind}s)"] += seconds
        reporter.section("processor time")
        for folder, seconds in sorted(folders.items(), key=lambda item: -item[1]):
            reporter.write_line(f"{seconds:8.1f} s  {folder}")
        reporter.write_line(f"{sum(folders.values()):8.1f} s  all; by test: {self._file}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processor-time", type=Path, metavar="FILE", help=__doc__.splitlines()[0])


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.getoption("--processor-time")
    if file is None:
        return
    own = ProcessorTime()
    config.pluginmanager.register(own, "processor-time")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Summary(file.resolve(), own), "processor-time-summary")
