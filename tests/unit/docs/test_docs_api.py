"""Routes, problems, keys and limits are told as they are."""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from fastapi import FastAPI

from app import audit_log
from app.api.admission import OPEN_PATHS, quota_headers
from app.api.application import ROUTES
from app.api.openapi import describe
from app.cli.keys import keys
from app.config import Settings
from app.domain.accounts import Scope as KeyScope
from app.domain.rules import KINDS_PER_WEBHOOK_MAX, RULES_PER_WEBHOOK_MAX
from app.http import problems
from app.http.bounded_http import CONNECTIONS_MAX, CONNECTIONS_REJECTED_MAX, HEAD_S
from app.http.request_limits import BODY_S, DOCUMENT_BYTES_MAX, HEADERS_BYTES_MAX, URL_BYTES_MAX
from app.log.estimate import AT_A_TIME
from app.services import verification
from app.services.limits import CONCURRENT_REQUESTS_MAX, Quota
from app.services.progress_watch import STREAMS_MAX, STREAMS_PER_KEY_MAX
from app.services.services import ESTIMATES_PER_ACCOUNT_MAX
from logbroker.json_log import JsonLines
from tests.unit.docs.doc_pages import page, section, table

API_PAGE, ACCESS_PAGE = page("api.md"), page("access.md")
TOLD_ROUTES = table(API_PAGE, "## Routes")
OPERATORS = re.compile(
    r"/events|/metrics|/processes|/pipeline/runs|/restorations|/log/.*"
    r"|/replays/\{replay_id\}/restoration.*"
)


FIXED = ("level", "logger", "event", "action", "target", "status")


class Lines(logging.Handler):
    """Keeps the lines of a log as they would be written."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JsonLines())
        self.lines: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@contextmanager
def heard(logger: logging.Logger) -> Iterator[list[Any]]:
    lines, level = Lines(), logger.level
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    try:
        yield lines.lines
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)


def described() -> FastAPI:
    """An application with all routes."""
    application = FastAPI()
    for room in ROUTES:
        application.include_router(room.router)
    return application


def document() -> dict[str, Any]:
    """The description of all routes, as the application has them."""
    return describe(described())


def test_every_route_is_told() -> None:
    operations = {
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        for method in methods
    }
    assert {row["route"] for row in TOLD_ROUTES} == operations | {"GET /openapi.json"}


def test_the_routes_that_take_no_key_or_an_operators_are_told_so() -> None:
    keys_told = {row["route"].split()[1]: row["key"] for row in TOLD_ROUTES}
    assert {path for path, key in keys_told.items() if key == "none"} == OPEN_PATHS
    answering_403 = {
        path
        for path, methods in document()["paths"].items()
        for operation in methods.values()
        if "403" in operation["responses"] and OPERATORS.fullmatch(path)
    }
    assert {path for path, key in keys_told.items() if key == "operator"} == answering_403


def test_every_problem_is_told_with_its_status_and_title() -> None:
    kinds = [each for each in vars(problems).values() if isinstance(each, problems.Kind)]
    told = {
        row["type"]: (int(row["status"]), row["title"]) for row in table(API_PAGE, "## Problems")
    }
    assert told == {kind.slug: (kind.status, kind.title) for kind in kinds}


def test_no_page_names_a_problem_that_there_is_not() -> None:
    slugs = {each.slug for each in vars(problems).values() if isinstance(each, problems.Kind)}
    for name in ("access.md", "replays.md", "webhooks.md"):
        told = set(re.findall(r"\b4\d\d `([a-z-]+)`|\b503 `([a-z-]+)`", page(name)))
        assert {one or other for one, other in told} <= slugs, name


def test_every_scope_is_told() -> None:
    told = {row["scope"] for row in table(ACCESS_PAGE, "## Accounts and keys")}
    assert told == set(KeyScope)


def test_every_option_of_rewind_keys_is_told() -> None:
    told: dict[str, set[str]] = {}
    for row in table(ACCESS_PAGE, "### `rewind keys`"):
        if row["command"]:
            command = row["command"].split()[2]
            told[command] = set()
        if row["option"]:
            told[command].add(row["option"].split()[0])
    wanted = {
        name: {
            param.opts[0]
            for param in command.params
            if isinstance(param, click.Option) and param.opts[0] != "--database"
        }
        for name, command in keys.commands.items()
    }
    assert told == wanted
    assert all(
        "--database" in {param.opts[0] for param in command.params}
        for command in keys.commands.values()
    )


def test_the_rates_that_are_told_are_settings_with_their_defaults() -> None:
    wanted = {
        f"REWIND_{name.upper()}": str(field.default)
        for name, field in Settings.model_fields.items()
        if name.endswith("requests_per_minute")
    }
    told = {row["setting"]: row["default"] for row in table(ACCESS_PAGE, "## How often")}
    assert told == wanted


def test_every_header_of_a_rate_is_told() -> None:
    told = {row["header"] for row in table(ACCESS_PAGE, "## How often", 1)}
    headers = quota_headers(Quota(limit=600, used=1, reset_s=60))
    assert {name.lower() for name in told} == headers.keys()
    assert headers["ratelimit-policy"] in ACCESS_PAGE


def test_the_limits_of_a_request_are_those_of_the_code() -> None:
    rows = table(ACCESS_PAGE, "## What a request may cost")
    told = {row["what"]: row["limit"] for row in rows}
    assert told["the URL"] == f"{URL_BYTES_MAX // 1024} KiB"
    assert told["the headers"] == f"{HEADERS_BYTES_MAX // 1024} KiB"
    assert told["the body"].startswith(f"{DOCUMENT_BYTES_MAX // 1024} KiB;")
    assert told["time for URL and headers"] == f"{HEAD_S:g} s"
    assert told["time for a body"] == f"{BODY_S:g} s"
    assert told["requests of a developer's key under way"] == str(CONCURRENT_REQUESTS_MAX)
    assert told["connections of one process"] == f"{CONNECTIONS_MAX:,}"
    assert (
        f"; from {CONNECTIONS_MAX + CONNECTIONS_REJECTED_MAX:,} on they are closed" in ACCESS_PAGE
    )
    streams = f"{STREAMS_PER_KEY_MAX} for a key, {STREAMS_MAX} for a process"
    assert told["streams of progress"] == streams
    account, process = verification.VERIFICATIONS_PER_ACCOUNT_MAX, verification.VERIFICATIONS_MAX
    asked = f"{account} for a developer's account, {process} for a process"
    assert told["proofs of ownership and tests under way"] == asked
    in_a_minute = f"{verification.VERIFICATIONS_PER_MINUTE_MAX} for a developer's account"
    assert told["proofs of ownership and tests in a minute"] == in_a_minute
    estimates = f"{ESTIMATES_PER_ACCOUNT_MAX} for a developer's account, {AT_A_TIME} for a process"
    assert told["estimates (dryRun) under way"] == estimates
    assert told["rules of a webhook"] == f"{RULES_PER_WEBHOOK_MAX:,}"
    assert told["[kinds of rules](webhooks.md#rules) of a webhook"] == str(KINDS_PER_WEBHOOK_MAX)


def test_the_line_of_the_audit_that_is_shown_has_the_fields_that_are_written() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", section(ACCESS_PAGE, "## The audit"), re.DOTALL)
    example = json.loads(block)
    with heard(audit_log.LOGGER) as lines:
        audit_log.record_change(example["action"], example["target"], status=example["status"])
    (line,) = lines
    assert line.keys() == example.keys()
    assert {name: line[name] for name in FIXED} == {name: example[name] for name in FIXED}
    told = {name for row in table(ACCESS_PAGE, "## The audit") for name in row["field"].split(", ")}
    assert told == line.keys() - {"time", "level", "logger", "event"}
