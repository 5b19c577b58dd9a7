import json
import logging
import sys
from typing import Any

import pytest

from logbroker.cli.log_lines import JsonLines


def told(message: str, *args: object, **extra: Any) -> dict[str, Any]:
    record = logging.LogRecord("logbroker", logging.WARNING, "", 0, message, args, None, **extra)
    record.created = 1_795_248_000.25
    line = JsonLines().format(record)
    assert "\n" not in line
    fields: dict[str, Any] = json.loads(line)
    return fields


def test_what_a_message_names_at_its_end_becomes_members() -> None:
    assert told("write failed partition=%s reason=%s", "clicks-0", "no room\nleft") == {
        "time": "2026-11-21T08:00:00.250Z",
        "level": "warning",
        "logger": "logbroker",
        "event": "write failed",
        "partition": "clicks-0",
        "reason": "no room\nleft",
    }


@pytest.mark.parametrize(
    ("message", "args", "event"),
    [
        ("a turn has failed", (), "a turn has failed"),
        ("%s has changed meanwhile", ("clicks",), "clicks has changed meanwhile"),
        ("connecting to zookeeper=%s again", ("zoo",), "connecting to zookeeper=zoo again"),
        ("connected to zookeeper=%s session=0x%x", ("zoo", 255), None),
        ("100%% of level=%s", ("x",), "100% of level=x"),
    ],
)
def test_any_other_message_is_told_whole(
    message: str, args: tuple[object, ...], event: str | None
) -> None:
    fields = told(message, *args)
    assert fields["event"] == (event or message % args)
    assert fields.keys() == {"time", "level", "logger", "event"}


def test_no_member_takes_the_place_of_what_every_line_has() -> None:
    assert told("closed level=%s", "deep")["level"] == "warning"


def test_an_error_brings_its_traceback() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert json.loads(JsonLines().format(record))["traceback"].endswith("ValueError: odd")
