"""The log of a broker: lines on standard error, as text for people or as JSON for machines."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

FORMATS: Final = ("text", "json")

_TEXT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"

_MEMBER: Final = re.compile(r" (\w+)=%[a-z]")
_NAMING: Final = re.compile(r"(?P<event>[^%]+?)(?P<members>( \w+=%[a-z])+)")
"""A message that ends with what it tells by name: `write failed partition=%s reason=%s`."""


def open_log(form: str) -> None:
    """Write everything from INFO on to standard error, in one of `FORMATS`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class JsonLines(logging.Formatter):
    """One JSON object in each line: time, level, logger, event, and the members of the message."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        moment = datetime.fromtimestamp(record.created, UTC).replace(tzinfo=None)
        event, members = _parted(record)
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


def _parted(record: logging.LogRecord) -> tuple[str, dict[str, object]]:
    """The event and its members, where the message ends with them; else the whole message."""
    naming = _NAMING.fullmatch(str(record.msg))
    if naming is None or not isinstance(record.args, tuple):
        return record.getMessage(), {}
    names = _MEMBER.findall(naming["members"])
    return naming["event"], dict(zip(names, record.args, strict=True))
