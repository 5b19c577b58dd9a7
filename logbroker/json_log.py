"""The log of all processes: lines on standard error, as JSON objects or as text.

Every module logs with `logging.getLogger(__name__)`. A message is a constant event text; values
follow it as `name=%s`, or are passed as `extra`, and become members of the JSON object.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"

_OWN_LOGGERS: Final = ("app", "logbroker", "rewind")
"""Their lines are written from INFO on, whatever the level of the root logger."""

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message"}

_MEMBER: Final = re.compile(r" (\w+)=%[a-z]")
_EVENT_WITH_MEMBERS: Final = re.compile(r"(?P<event>[^%]+?)(?P<members>( \w+=%[a-z])+)")
"""A message that ends with named values: `write failed partition=%s reason=%s`."""


def configure_logging(form: str = "json", *, root_level: int = logging.WARNING) -> None:
    """Write log lines to standard error, in one of `FORMATS`.

    `root_level` applies to loggers of other packages.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=root_level, handlers=[handler], force=True)
    for name in _OWN_LOGGERS:
        logging.getLogger(name).setLevel(logging.INFO)


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
        return json.dumps(fields, default=str)


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
