"""The log of a process: one JSON object in each line on standard error."""

import json
import logging
from typing import Any, Final

from app.domain.windows import format_time

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "color_message"}


class JsonLines(logging.Formatter):
    """One JSON object in each line: time, level, logger, event, and what the caller added."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one record."""
        fields: dict[str, Any] = {
            "time": format_time(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        fields |= {
            name: value for name, value in vars(record).items() if name not in _STANDARD_FIELDS
        }
        if record.exc_info:
            fields["traceback"] = self.formatException(record.exc_info)
        return json.dumps(fields, default=str)


def said_in(line: str) -> str:
    """What a line of a log says to a person: the reason or event of ours, any other as it is."""
    try:
        fields = json.loads(line)
        return str(fields.get("reason") or fields["event"])
    except (ValueError, KeyError, AttributeError):
        return line


CONFIG: Final[dict[str, Any]] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"lines": {"()": JsonLines}},
    "handlers": {
        "stderr": {
            "class": "logging.StreamHandler",
            "formatter": "lines",
            "stream": "ext://sys.stderr",
        }
    },
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {"rewind": {"level": "INFO"}, "app": {"level": "INFO"}},
}
"""For `logging.config.dictConfig`: our own loggers from INFO, everybody else's from WARNING."""
