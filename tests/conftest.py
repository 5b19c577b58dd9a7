"""Settings of every test, and the fixtures of `tests.support`, by subject."""

import gc
from collections.abc import Generator, Iterator

import pytest
from hypothesis import settings

from tests.support.processes.fork_server import fork_server

pytest_plugins = (
    "tests.support.database.fixtures",
    "tests.support.http.fixtures",
    "tests.support.kafka.fixtures",
    "tests.support.spark.fixtures",
    "tests.support.processes.process_marks",
    "tests.support.processes.processor_time",
)

# A busy machine takes its time; no test here is about time.
# Fewer than the hundred examples of the library: each run has others, and many run them.
settings.register_profile("untimed", deadline=None, max_examples=30)
settings.load_profile("untimed")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and collected tests out of garbage collection, which would visit them all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def end_of_fork_server() -> Iterator[None]:
    """At the end of all tests, end the process that our programs are forked from."""
    yield
    fork_server.close()
