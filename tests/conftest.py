"""Settings of every test, and the fixtures of `tests.support`, by subject."""

import gc
import signal
from collections.abc import Generator, Iterator
from typing import Final

import pytest

from tests.support.processes.fork_server import fork_server
from tests.support.property_examples import register_profiles

pytest_plugins = (
    "tests.support.database.fixtures",
    "tests.support.kafka.fixtures",
    "tests.support.spark.fixtures",
    "tests.support.processes.memory_folder",
    "tests.support.processes.parallel_runs",
    "tests.support.processes.process_marks",
    "tests.support.processes.processor_time",
)

COLLECTION_OBJECTS: Final = 7_000
"""New objects between two garbage collections. Python's default, 700, costs the tests 8 % more."""

register_profiles()


def pytest_configure(config: pytest.Config) -> None:
    """Sort the paths of the command line, and take SIGINT.

    Pytest 9.1 loses the fixtures of a folder's `conftest.py` if another folder comes in between.
    A shell without job control starts commands in the background with SIGINT ignored, and programs
    that tests start would inherit that.
    """
    config.args.sort()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and collected tests out of garbage collection, which would visit them all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(COLLECTION_OBJECTS)
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def end_of_fork_server() -> Iterator[None]:
    """At the end of all tests, end the process that our programs are forked from."""
    yield
    fork_server.close()
