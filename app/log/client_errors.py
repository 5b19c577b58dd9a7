"""Logs the errors of the service's Kafka clients; they contain addresses, so not for users."""

import logging
import re
from functools import partial
from typing import Final

from logbroker.client.librdkafka import ErrorReporter, RepeatFilter

_log: Final = logging.getLogger(__name__)

CLIENT_ERRORS: Final = ErrorReporter(partial(_log.warning, "log client: %s"))
"""For all clients of this process, because some exist for one call only."""

CLIENT_LOG: Final = logging.getLogger("app.log.librdkafka")
"""The logger for librdkafka's own lines, without the repeats of failed connections."""

_CLIENT_AND_THREAD: Final = re.compile(r"FAIL \[[^\]]*\] \[thrd:[^\]]*\]: ")

_reasons: Final = RepeatFilter()


def _is_new(record: logging.LogRecord) -> bool:
    """Whether to log a line of a client."""
    line = record.getMessage()
    failure = _CLIENT_AND_THREAD.match(line)
    return failure is None or _reasons.pass_if_new(line[failure.end() :]) is not None


CLIENT_LOG.addFilter(_is_new)
