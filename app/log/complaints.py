"""What the service's clients complain of, in its log; it names addresses: for operators alone."""

import logging
import re
from functools import partial
from typing import Final

from logbroker.client.librdkafka import ErrorReporter, RepeatFilter

_log: Final = logging.getLogger(__name__)

COMPLAINTS: Final = ErrorReporter(partial(_log.warning, "log client: %s"))
"""Of all clients of this process: some live for one call alone."""

CLIENT_LOG: Final = logging.getLogger("app.log.librdkafka")
"""Where clients write lines of their own; each attempt to connect in vain would leave one."""

_CLIENT_AND_THREAD: Final = re.compile(r"FAIL \[[^\]]*\] \[thrd:[^\]]*\]: ")

_reasons: Final = RepeatFilter()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether a line of a client's own is to be written."""
    line = record.getMessage()
    is_complaint = _CLIENT_AND_THREAD.match(line)
    return is_complaint is None or _reasons.pass_if_new(line[is_complaint.end() :]) is not None


CLIENT_LOG.addFilter(_is_news)
