"""The log of all processes: lines on standard error, as JSON objects or as text.

Every module logs with `logging.getLogger(__name__)`. A message is a constant event text; values
follow it as `name=%s`, or are passed as `extra`, and become members of the JSON object.
"""

import json
import logging
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"

_OWN_LOGGERS: Final = ("app", "logbroker", "rewind")
"""Their lines are written from INFO on, whatever the level of the root logger."""

_UNUSED_FIELDS: Final = {
    "_srcfile": None,
    "logThreads": False,
    "logProcesses": False,
    "logMultiprocessing": False,
}
"""Variables of `logging` that leave out what no line has: looking up the place of the call, the
thread and the process takes as long as the rest of a line.

Source: Python's Logging HOWTO, "Optimization".
"""

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message"}

_MEMBER: Final = re.compile(r" (\w+)=%[a-z]")
_EVENT_WITH_MEMBERS: Final = re.compile(r"(?P<event>[^%]+?)(?P<members>( \w+=%[a-z])+)")
"""A message that ends with named values: `write failed partition=%s reason=%s`."""

_encode: Final = json.JSONEncoder(default=str).encode

CLIENT_LOGGERS: Final = (
    "logbroker.connection",
    "logbroker.listener",
    "logbroker.metrics_http",
    "logbroker.sasl",
    "logbroker.schemas.requests",
    "uvicorn.error",
)
"""Every client that reaches a port can cause their lines."""

REPETITIONS_MAX: Final = 100
REPETITION_PERIOD_S: Final = 60.0
"""At most so many lines of one message are written per period, where clients cause them."""


def configure_logging(form: str = "json", *, root_level: int = logging.WARNING) -> None:
    """Write log lines to standard error, in one of `FORMATS`.

    `root_level` applies to loggers of other packages. The lines of each message of `CLIENT_LOGGERS`
    are limited, so that clients cannot fill a disk.
    """
    vars(logging).update(_UNUSED_FIELDS)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=root_level, handlers=[handler], force=True)
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)
    for name in CLIENT_LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(each, RepetitionLimit) for each in logger.filters):
            logger.addFilter(RepetitionLimit())


class RepetitionLimit(logging.Filter):
    """Passes the first lines of each message in a period, and counts the others.

    The first line after the period has the count, as `suppressed=N`.
    """

    def __init__(self) -> None:
        super().__init__()
        self._periods: dict[str, _Period] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the line is written."""
        message = str(record.msg)
        period = self._periods.get(message)
        # The clock may be set back.
        if period is None or not 0 <= record.created - period.began_s < REPETITION_PERIOD_S:
            suppressed = 0 if period is None else period.lines - REPETITIONS_MAX
            period = self._periods[message] = _Period(record.created)
            if suppressed > 0 and isinstance(record.args, tuple):
                record.msg = f"{message} suppressed=%d"
                record.args = (*record.args, suppressed)
        period.lines += 1
        return period.lines <= REPETITIONS_MAX


@dataclass(slots=True)
class _Period:
    began_s: float
    lines: int = 0


class JsonLines(logging.Formatter):
    """Formats a record as one JSON object: time, level, logger, event, and named values."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        event, members = _event_and_members(record)
        members |= {k: v for k, v in vars(record).items() if k not in _STANDARD_FIELDS}
        fields: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds") + "Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": event,
        }
        fields |= {name: value for name, value in members.items() if name not in fields}
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return _encode(fields)


def reason_in(line: str) -> str:
    """Return the reason, or else the event, of a JSON line; any other line as it is."""
    try:
        fields = json.loads(line)
        return str(fields.get("reason") or fields["event"])
    except (ValueError, KeyError, AttributeError):
        return line


def _event_and_members(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """Return the event and its named values; the whole message if it does not end with them."""
    match = _EVENT_WITH_MEMBERS.fullmatch(str(record.msg))
    if match is None or not isinstance(record.args, tuple):
        return record.getMessage(), {}
    names = _MEMBER.findall(match["members"])
    return match["event"], dict(zip(names, record.args, strict=True))
