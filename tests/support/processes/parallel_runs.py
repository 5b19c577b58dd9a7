"""Parallel runs with `pytest -n N --dist loadgroup`: a process runs whole modules and groups.

So a module's fixtures, such as its broker, are set up once. Each process lists all files, but
imports a file only to run it: to collect all tests in each process takes a minute of processor in
a fresh clone. A file without the words of the marks that `-m` asks for is not even imported.
Files start in the order of their collection, the many short ones of `tests/unit`
last: the processes end at about the same time.
"""

import gc
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final, Self

import pytest
from _pytest.mark.expression import Expression
from _pytest.runner import runtestprotocol
from xdist.scheduler import LoadGroupScheduling

SHOWN_FROM_S: Final = 0.005
"""Shorter set-ups and tear-downs are left out by `--durations`, too."""

MARK_WORDS: Final = {
    "hypothesis": ("hypothesis",),
    # The tests of a fixture are marked by `process_marks.py`.
    "long": ("mark.long", "apache_kafka"),
}
"""What is in each file with a test that has the mark."""

_GROUP: Final = re.compile(r'xdist_group\("(\w+)"')


class ModuleScheduling(LoadGroupScheduling):
    """Keeps the tests of a module together, and those of an `xdist_group`."""

    _completed = 0

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        self._completed += 1
        super().mark_test_complete(node, item_index, duration)

    def progress(self) -> str:
        """Return the share of completed files, as pytest prints that of tests."""
        return f" [{100 * self._completed // len(self.collection or '-'):3d}%]"

    def _split_scope(self, nodeid: str) -> str:
        scope = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if scope == nodeid else scope


class TestFile(pytest.Item):
    """The tests of a file that are in one `xdist_group`, or in none. They are collected to be run.

    A file that names groups is one more of these for each.
    """

    __test__ = False
    group: str | None = None

    @classmethod
    def of(cls, path: Path, parent: pytest.Collector, group: str | None = None) -> Self:
        """Return the file; `parent` is its folder."""
        nodeid = path.relative_to(parent.config.rootpath).as_posix()
        if group is not None:
            nodeid += f"@{group}"
        file = cls.from_parent(parent, name=path.name, path=path, nodeid=nodeid)
        file.group = group
        # Each test has a timeout of its own.
        file.add_marker(pytest.mark.timeout(0))
        return file

    def parts(self) -> list["TestFile"]:
        """Return this file, and its parts in groups. Empty if no test of it is selected."""
        assert isinstance(self.parent, pytest.Collector)
        text = self.path.read_text()
        if not _may_be_selected(text, self.config.option.markexpr):
            return []
        groups = sorted(set(_GROUP.findall(text)))
        return [self, *(TestFile.of(self.path, self.parent, group) for group in groups)]

    def runtest(self) -> None:
        raise AssertionError("a file is run by run_tests")

    def run_tests(self, next_file: pytest.Item | None) -> None:
        """Run all tests; fixtures that `next_file` may use stay."""
        tests = self._collect_tests()
        if not tests:
            # Earlier tests left the fixtures of this folder, which `next_file` may not be in.
            self.session._setupstate.teardown_exact(next_file)
        own_nodeid = self._nodeid
        for test, next_item in zip(tests, [*tests[1:], next_file], strict=False):
            # The worker of xdist compares the id of its item with that of each report.
            self._nodeid = test.nodeid
            self.config.hook.pytest_runtest_protocol(item=test, nextitem=next_item)
            if self.session.shouldfail or self.session.shouldstop:
                break
        self._nodeid = own_nodeid

    def _collect_tests(self) -> list[pytest.Item]:
        # Modules and tests are not garbage.
        gc.disable()
        module: pytest.Module = pytest.Module.from_parent(self.parent, path=self.path)
        tests = [each for each in self.session.genitems(module) if _group_of(each) == self.group]
        text = self.path.read_text()
        marks = {mark.name for test in tests for mark in test.iter_markers()}
        for mark in marks & MARK_WORDS.keys():
            assert _may_be_selected(text, mark), f"{self.nodeid} lacks {MARK_WORDS[mark]}"
        self.config.hook.pytest_collection_modifyitems(
            session=self.session, config=self.config, items=tests
        )
        gc.enable()
        return tests


def _may_be_selected(text: str, expression: str) -> bool:
    """Report whether a file with this text may have tests that `-m` selects."""
    names = re.findall(r"\w+", expression)
    if not names or not MARK_WORDS.keys() | {"or", "and"} >= set(names):
        return True
    compiled = Expression.compile(expression)
    return compiled.evaluate(lambda name, /, **_: any(word in text for word in MARK_WORDS[name]))


def _group_of(test: pytest.Item) -> str | None:
    mark = test.get_closest_marker("xdist_group")
    return None if mark is None else mark.args[0]


class FileWorker:
    """Makes a process collect files, and the tests of a file when it runs them."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_pycollect_makemodule(
        self, module_path: Path, parent: pytest.Collector
    ) -> pytest.Item:
        return TestFile.of(module_path, parent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None]:
        """Select no files: their tests are selected, by marks and names."""
        files = [each for each in items if isinstance(each, TestFile)]
        if files:
            items.clear()
        yield
        items += [part for file in files for part in file.parts()]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        if not isinstance(item, TestFile):
            return None
        item.run_tests(nextitem)
        return True


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
    scheduling = ModuleScheduling(config, log)
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and _are_files(config):
        # It would divide the number of tests by that of files.
        reporter._get_progress_information_message = scheduling.progress
    return scheduling


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(FewMessages())
        if config.option.loadgroup and _are_files(config):
            config.pluginmanager.register(FileWorker())


def _are_files(config: pytest.Config) -> bool:
    """Report whether the command line names files and folders, and no tests."""
    return not any("::" in argument for argument in config.args)
