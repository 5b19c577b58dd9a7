import json
import logging
import sys
from typing import Any

import pytest

from logbroker.json_log import (
    REPETITION_PERIOD_S,
    REPETITIONS_MAX,
    JsonLines,
    RepetitionLimit,
    reason_in,
)


def fields_of(message: str, *args: object, **extra: Any) -> dict[str, Any]:
    record = logging.LogRecord("logbroker", logging.WARNING, "", 0, message, args, None, **extra)
    record.created = 1_795_248_000.25
    line = JsonLines().format(record)
    assert "\n" not in line
    fields: dict[str, Any] = json.loads(line)
    return fields


def test_named_values_at_the_end_of_a_message_become_members() -> None:
    assert fields_of("write failed partition=%s reason=%s", "clicks-0", "no room\nleft") == {
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
def test_any_other_message_is_the_event(
    message: str, args: tuple[object, ...], event: str | None
) -> None:
    fields = fields_of(message, *args)
    assert fields["event"] == (event or message % args)
    assert fields.keys() == {"time", "level", "logger", "event"}


def test_no_member_replaces_a_standard_field() -> None:
    assert fields_of("closed level=%s", "deep")["level"] == "warning"


def test_an_exception_has_its_traceback() -> None:
    try:
        raise ValueError("odd")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert json.loads(JsonLines().format(record))["traceback"].endswith("ValueError: odd")


def test_extra_values_become_members_and_replace_no_standard_field() -> None:
    record = logging.LogRecord("x", logging.INFO, "", 0, "claimed lease_s=%s", (30,), None)
    vars(record).update(replay="rpl_1", event="other")
    fields = json.loads(JsonLines().format(record))
    assert (fields["event"], fields["lease_s"], fields["replay"]) == ("claimed", 30, "rpl_1")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"event": "failed", "reason": "no room"}', "no room"),
        ('{"event": "failed"}', "failed"),
        ("plain text", "plain text"),
        ("[1]", "[1]"),
    ],
)
def test_the_reason_of_a_line_is_found(line: str, reason: str) -> None:
    assert reason_in(line) == reason


def rejected(seconds: float, peer: str = "10.0.0.1") -> logging.LogRecord:
    message = "rejected peer=%s"
    record = logging.LogRecord("logbroker", logging.WARNING, "", 0, message, (peer,), None)
    record.created = 1_795_248_000 + seconds
    return record


def test_further_lines_of_a_message_are_suppressed_and_counted() -> None:
    limit = RepetitionLimit()
    passed = [limit.filter(rejected(number * 0.01, f"10.0.0.{number}")) for number in range(150)]
    assert passed == [True] * REPETITIONS_MAX + [False] * (150 - REPETITIONS_MAX)
    other = logging.LogRecord("logbroker", logging.WARNING, "", 0, "closed", (), None)
    other.created = rejected(0).created
    assert limit.filter(other)
    later = rejected(REPETITION_PERIOD_S)
    assert limit.filter(later)
    assert json.loads(JsonLines().format(later))["suppressed"] == 150 - REPETITIONS_MAX
    last = rejected(REPETITION_PERIOD_S + 1)
    assert limit.filter(last)
    assert last.getMessage() == "rejected peer=10.0.0.1"


def test_lines_are_written_again_after_the_clock_was_set_back() -> None:
    limit = RepetitionLimit()
    for _ in range(REPETITIONS_MAX):
        assert limit.filter(rejected(0))
    assert not limit.filter(rejected(1))
    assert limit.filter(rejected(-3600))
