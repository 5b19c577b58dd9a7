"""The pages on the API and on access match the code: routes, problems, keys, limits."""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import click
import pytest
from fastapi import FastAPI

from app import audit_log
from app.api.admission import OPEN_PATHS, quota_headers
from app.api.application import ROUTES
from app.api.openapi import describe
from app.cli.accounts import accounts
from app.cli.grants import grants
from app.cli.keys import keys
from app.config import Settings
from app.domain.accounts import Scope as KeyScope
from app.domain.grants import GRANT_KINDS_PER_ACCOUNT_MAX, GRANTS_PER_ACCOUNT_MAX
from app.domain.rules import (
    ALTERNATIVES_PER_ACCOUNT_MAX,
    GLOBS_PER_ACCOUNT_MAX,
    KINDS_PER_ACCOUNT_MAX,
    KINDS_PER_WEBHOOK_MAX,
    PATH_SETS_PER_ACCOUNT_MAX,
    PATTERNS_PER_ACCOUNT_MAX,
    RULES_PER_WEBHOOK_MAX,
)
from app.http import problems
from app.http.request_limits import BODY_S, DOCUMENT_BYTES_MAX, HEADERS_BYTES_MAX, URL_BYTES_MAX
from app.log.estimate import AT_A_TIME
from app.services import verification
from app.services.limits import CONCURRENT_REQUESTS_MAX, Quota
from app.services.progress_watch import STREAMS_MAX, STREAMS_PER_KEY_MAX
from app.services.services import ESTIMATES_PER_ACCOUNT_MAX
from logbroker.bounded_http import HEAD_S, UNREAD_S, BoundedHttp
from logbroker.json_log import JsonLines
from tests.unit.docs.doc_pages import page, section, table

API_PAGE, ACCESS_PAGE = page("api.md"), page("access.md")
DOCUMENTED_ROUTES = table(API_PAGE, "## Routes")
OPERATORS = re.compile(
    r"(PUT|DELETE) /accounts/.*|[A-Z]+ (/events|/metrics|/processes|/pipeline/runs|/restorations"
    r"|/log/.*|/replays/\{replay_id\}/restoration.*)"
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
def captured(logger: logging.Logger) -> Iterator[list[Any]]:
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
    for module in ROUTES:
        application.include_router(module.router)
    return application


@cache
def document() -> dict[str, Any]:
    """The description of all routes, as the application has them."""
    return describe(described())


def test_every_route_is_documented() -> None:
    operations = {
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        for method in methods
    }
    assert {row["route"] for row in DOCUMENTED_ROUTES} == operations | {"GET /openapi.json"}


def test_the_page_names_the_key_of_each_route() -> None:
    documented_keys = {row["route"]: row["key"] for row in DOCUMENTED_ROUTES}
    open_routes = {f"GET {path}" for path in OPEN_PATHS}
    assert {route for route, key in documented_keys.items() if key == "none"} == open_routes
    answering_403 = {
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        for method, operation in methods.items()
        if "403" in operation["responses"] and OPERATORS.fullmatch(f"{method.upper()} {path}")
    }
    assert {route for route, key in documented_keys.items() if key == "operator"} == answering_403


def test_every_problem_is_documented_with_status_and_title() -> None:
    kinds = [each for each in vars(problems).values() if isinstance(each, problems.Kind)]
    documented = {
        row["type"]: (int(row["status"]), row["title"]) for row in table(API_PAGE, "## Problems")
    }
    assert documented == {kind.slug: (kind.status, kind.title) for kind in kinds}


def test_pages_name_only_existing_problems() -> None:
    slugs = {each.slug for each in vars(problems).values() if isinstance(each, problems.Kind)}
    for name in ("access.md", "replays.md", "webhooks.md"):
        documented = set(re.findall(r"\b4\d\d `([a-z-]+)`|\b503 `([a-z-]+)`", page(name)))
        assert {one or other for one, other in documented} <= slugs, name


def test_every_scope_is_documented() -> None:
    documented = {row["scope"] for row in table(ACCESS_PAGE, "## Accounts and keys")}
    assert documented == set(KeyScope)


@pytest.mark.parametrize("group", [accounts, grants, keys], ids=lambda group: group.name)
def test_every_option_of_the_commands_is_documented(group: click.Group) -> None:
    documented: dict[str, set[str]] = {}
    for row in table(ACCESS_PAGE, f"### `rewind {group.name}`"):
        if row["command"]:
            command = row["command"].split()[2]
            documented[command] = set()
        if row["option"]:
            documented[command].add(row["option"].split()[0])
    wanted = {
        name: {
            param.opts[0]
            for param in command.params
            if isinstance(param, click.Option) and param.opts[0] != "--database"
        }
        for name, command in group.commands.items()
    }
    assert documented == wanted
    assert all(
        "--database" in {param.opts[0] for param in command.params}
        for command in group.commands.values()
    )


def test_documented_rate_limits_are_settings_with_their_defaults() -> None:
    wanted = {
        f"REWIND_{name.upper()}": str(field.default)
        for name, field in Settings.model_fields.items()
        if name.endswith("requests_per_minute")
    }
    documented = {row["setting"]: row["default"] for row in table(ACCESS_PAGE, "## Rate limits")}
    assert documented == wanted


def test_every_quota_header_is_documented() -> None:
    documented = {row["header"] for row in table(ACCESS_PAGE, "## Rate limits", 1)}
    headers = quota_headers(Quota(limit=600, used=1, reset_s=60))
    assert {name.lower() for name in documented} == headers.keys()
    assert headers["ratelimit-policy"] in ACCESS_PAGE


def test_the_limits_of_a_request_are_those_of_the_code() -> None:
    rows = table(ACCESS_PAGE, "## Request limits")
    documented = {row["what"]: row["limit"] for row in rows}
    assert documented["the URL"] == f"{URL_BYTES_MAX // 1024} KiB"
    assert documented["the headers"] == f"{HEADERS_BYTES_MAX // 1024} KiB"
    assert documented["the body"].startswith(f"{DOCUMENT_BYTES_MAX // 1024} KiB;")
    assert documented["time for URL and headers"] == f"{HEAD_S:g} s"
    assert documented["time for a body"] == f"{BODY_S:g} s"
    assert documented["concurrent requests of a developer's key"] == str(CONCURRENT_REQUESTS_MAX)
    assert documented["time in which a client reads nothing of a response"] == f"{UNREAD_S:g} s"
    connections_max = BoundedHttp.connections_max
    assert documented["connections of one process"] == f"{connections_max:,}"
    closed_from = connections_max + BoundedHttp.connections_rejected_max
    assert f"; from {closed_from:,} on they are closed" in ACCESS_PAGE
    streams = f"{STREAMS_PER_KEY_MAX} for a key, {STREAMS_MAX} for a process"
    assert documented["progress streams"] == streams
    account, process = verification.VERIFICATIONS_PER_ACCOUNT_MAX, verification.VERIFICATIONS_MAX
    asked = f"{account} for a developer's account, {process} for a process"
    assert documented["concurrent verifications and tests"] == asked
    in_a_minute = f"{verification.VERIFICATIONS_PER_MINUTE_MAX} for a developer's account"
    assert documented["verifications and tests per minute"] == in_a_minute
    estimates = f"{ESTIMATES_PER_ACCOUNT_MAX} for a developer's account, {AT_A_TIME} for a process"
    assert documented["concurrent estimates (dryRun)"] == estimates
    assert documented["rules of a webhook"] == f"{RULES_PER_WEBHOOK_MAX:,}"
    assert documented["[kinds of rules](webhooks.md#rules) of a webhook"] == str(
        KINDS_PER_WEBHOOK_MAX
    )
    assert documented["[grants](#grants) of an account"] == f"{GRANTS_PER_ACCOUNT_MAX:,}"
    kinds = documented["[kinds of grants](#grants) of an account"]
    assert kinds == str(GRANT_KINDS_PER_ACCOUNT_MAX)
    for what, most in (
        ("kinds of rules", KINDS_PER_ACCOUNT_MAX),
        ("different globs in the rules", GLOBS_PER_ACCOUNT_MAX),
        ("different sets of paths in the rules", PATH_SETS_PER_ACCOUNT_MAX),
        ("different [patterns](webhooks.md#patterns) in the rules", PATTERNS_PER_ACCOUNT_MAX),
    ):
        assert documented[f"{what} of a developer's account"] == str(most)
    alternatives = documented["alternatives of these patterns together"]
    assert alternatives == str(ALTERNATIVES_PER_ACCOUNT_MAX)


def test_the_example_of_an_audit_line_has_its_fields() -> None:
    (block,) = re.findall(r"```json\n(.*?)```", section(ACCESS_PAGE, "## The audit"), re.DOTALL)
    example = json.loads(block)
    with captured(audit_log.LOGGER) as lines:
        audit_log.record_change(example["action"], example["target"], status=example["status"])
    (line,) = lines
    assert line.keys() == example.keys()
    assert {name: line[name] for name in FIXED} == {name: example[name] for name in FIXED}
    documented = {
        name for row in table(ACCESS_PAGE, "## The audit") for name in row["field"].split(", ")
    }
    assert documented == line.keys() - {"time", "level", "logger", "event"}
