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
    loggers = [logging.getLogger(name) for name in CLIENT_LOGGERS]
    filters = [logger.filters for logger in loggers]
    for logger in loggers:
        # A limit of an earlier test has counted lines.
        logger.filters = []
    for _ in range(2):
        configure_logging()
    root.handlers = handlers
    root.setLevel(level)
    yield
    for logger, earlier in zip(loggers, filters, strict=True):
        (limit,) = logger.filters
        assert isinstance(limit, RepetitionLimit)
        logger.filters = earlier
