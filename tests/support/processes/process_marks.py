"""The marker `processes`: a unit test without it starts no process.

`make unit` runs the unit tests without the marker. Tests of the fixtures below have it; another
test that starts a process says so itself, or fails.
"""

import functools
import os
import subprocess
from collections.abc import Callable, Generator
from typing import Any, Final

import pytest

SERVERS: Final = frozenset(
    {"apache_kafka", "broker", "hdfs", "kafka_commands", "mariadb", "own_zookeeper"}
    | {"secured_kafka", "spark", "zookeeper", "zookeeper_ensemble"}
)
"""Fixtures that start processes, wherever they are defined."""

STARTS: Final = (
    *((os, name) for name in ("fork", "forkpty", "posix_spawn", "posix_spawnp")),
    (subprocess.Popen, "__init__"),
)
"""Functions that start processes.

They are replaced: an audit hook of the interpreter (PEP 578) would be called at each `id()`, too,
which took a twentieth of the processor time of the unit tests.
"""


class ProcessGuard:
    """Fails unit tests that start a process without the marker."""

    def __init__(self) -> None:
        self._guarded = False
        for owner, name in STARTS:
            setattr(owner, name, self._checked(getattr(owner, name)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        is_test = isinstance(item, pytest.Function)
        self._guarded = is_test and item.nodeid.startswith("tests/unit/") and not _is_marked(item)
        try:
            return (yield)
        finally:
            self._guarded = False

    def _checked(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def checked(*arguments: Any, **options: Any) -> Any:
            if self._guarded:
                raise AssertionError(f"{start.__qualname__} without @pytest.mark.processes")
            return start(*arguments, **options)

        return checked


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
