"""Fixtures of the tests of logbroker."""

import logging
from collections.abc import Iterator

import pytest

from logbroker.json_log import CLIENT_LOGGERS, RepetitionLimit, configure_logging


@pytest.fixture
def limited_client_loggers() -> Iterator[None]:
    """Limit lines as each process does at its start; a second time makes no difference."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []
    for _ in range(2):
        configure_logging()
    root.handlers = handlers
    root.setLevel(level)
    yield
    for name in CLIENT_LOGGERS:
        logger = logging.getLogger(name)
        (limit,) = [each for each in logger.filters if isinstance(each, RepetitionLimit)]
        logger.removeFilter(limit)
