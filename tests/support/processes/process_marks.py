"""The marker `processes`: a unit test without it starts no process.

`make unit` runs the unit tests without the marker. Tests of the fixtures below have it; another
test that starts a process says so itself, or fails.
"""

import sys
from typing import Final

import pytest

SERVERS: Final = frozenset(
    {"apache_kafka", "broker", "mariadb", "own_zookeeper", "spark", "zookeeper"}
    | {"zookeeper_ensemble"}
)
"""Fixtures that start processes, wherever they are defined."""

STARTS: Final = frozenset({"os.fork", "os.posix_spawn", "subprocess.Popen"})
"""Events of the interpreter's audit (PEP 578)."""


class ProcessGuard:
    """Fails unit tests that start a process without the marker."""

    def __init__(self) -> None:
        self._guarded: str | None = None
        sys.addaudithook(self._check)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._guarded = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        is_unit = item.nodeid.startswith("tests/unit/")
        self._guarded = item.nodeid if is_unit and not _is_marked(item) else None

    def pytest_runtest_logfinish(self) -> None:
        self._guarded = None

    def _check(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._guarded is not None and event in STARTS:
            raise AssertionError(f"{event} {arguments} without @pytest.mark.processes")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(ProcessGuard())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if SERVERS.intersection(fixtures):
            item.add_marker(pytest.mark.processes)
        if "apache_kafka" in fixtures:
            item.add_marker(pytest.mark.long)


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker("processes") is not None
