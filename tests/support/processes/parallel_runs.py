"""Parallel runs with `pytest -n N --dist loadgroup`: a process runs whole modules and groups.

So a module's fixtures, such as its broker, are set up once. Modules start in the order of their
collection, the many short ones of `tests/unit` last: the processes end at about the same time.
"""

from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadGroupScheduling

SHOWN_FROM_S: Final = 0.005
"""Shorter set-ups and tear-downs are left out by `--durations`, too."""


class ModuleScheduling(LoadGroupScheduling):
    """Keeps the tests of a module together, and those of an `xdist_group`."""

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid else scope


class FewMessages:
    """Sends one report of a passed test to the parent process, not three and two more messages."""

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed or report.duration >= SHOWN_FROM_S:
                item.ihook.pytest_runtest_logreport(report=report)
        return True


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ModuleScheduling | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False
    return ModuleScheduling(config, log)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(FewMessages())
