"""The rules of a webhook: the list, the editor, and the test of a sample event."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter
from pydantic import Field, Json
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from app.console.flash_messages import flash_query
from app.console.forms import REJECTIONS, FormRejection, form_rejection, parse_body
from app.console.page_requests import (
    ChangeRequest,
    EditorRequest,
    PageRequest,
    Submission,
    ViewerRequest,
)
from app.console.urls import WEBHOOKS, page_url
from app.console.webhooks import read_webhook
from app.domain.model import Webhook
from app.domain.rules import RULE_NAME, Conditions, Rule, document_of
from app.http.dependencies import Cursor
from app.http.event_patterns import Where
from app.http.event_selections import EventSelection
from app.http.problems import Problem
from app.http.request_bodies import RequestBody
from app.http.sample_events import SampleEventRequest
from app.services.coverage import find_covered_names
from app.services.errors import FieldError, InvalidRequest
from app.services.sample_events import SampleMatch, match_sample
from app.services.services import Services, now_ms
from app.store.errors import RuleNotFound
from app.store.pages import Page

ROWS: Final = 50

FIELDS: Final = ("name", "eventTypes", "where", "event")
"""The fields of the editor; `event` is a sample event to test the typed rule with."""

_TEST: Final = "test"
"""The value of the button that tests the rule of the editor."""

MATCHES_SHOWN: Final = 50
"""Of the names of matching rules, up to ten thousand."""

router = APIRouter(prefix=WEBHOOKS + "/{webhook_id}")


class RuleRow(NamedTuple):
    """A rule. Values of conditions are JSON, so that 42 and "42" differ.

    `is_covered` is whether a grant of the account covers some event that it can match.
    """

    name: str
    event_types: tuple[str, ...]
    where: tuple[tuple[str, str], ...]
    is_covered: bool


@dataclass(frozen=True, slots=True)
class RuleTest:
    """The test of a sample event: the text of the form, and its result or its errors."""

    event: str
    match: SampleMatch | None = None
    rejection: FormRejection | None = None


class _TypedRule(EventSelection):
    """A rule as typed into the form."""

    name: Annotated[str, Field(pattern=RULE_NAME)]
    where: Json[Where]


class _TypedEvent(RequestBody):
    """A sample event as typed into the form."""

    event: Json[SampleEventRequest]


@router.get("/rules")
async def rules_page(webhook_id: str, request: ViewerRequest, cursor: Cursor = None) -> Response:
    """Show the rules of a webhook, by name."""
    return await _render_rules(request, webhook_id, RuleTest(""), cursor)


@router.post("/rule-matches", operation_id="matchRules")
async def match_rules(webhook_id: str, request: ChangeRequest) -> Response:
    """Show which rules a sample event matches. Nothing is published or sent."""
    text, status = request.form["event"], 200
    try:
        await read_webhook(request, webhook_id)
        sample = parse_body(_TypedEvent, {"event": text}).event.sample(now_ms())
        match = await run_in_threadpool(
            match_sample, request.services, request.key, webhook_id, sample
        )
        test = RuleTest(text, match)
    except Problem as problem:
        test = RuleTest(text, rejection=form_rejection(problem, ("event",)))
        status = problem.kind.status
    request.log_change(status)
    return await _render_rules(request, webhook_id, test, status=status)


@router.get("/new-rule")
async def new_rule_page(webhook_id: str, request: EditorRequest) -> Response:
    """Show the empty form."""
    webhook = await read_webhook(request, webhook_id)
    return await _render_form(request, webhook, None, dict.fromkeys(FIELDS, ""))


@router.post("/new-rule", operation_id="putRule")
async def add_rule(webhook_id: str, request: ChangeRequest) -> Response:
    """Add a rule."""
    return await _submit(request, webhook_id, None)


@router.get("/rules/{name}")
async def rule_page(webhook_id: str, name: str, request: EditorRequest) -> Response:
    """Show the form with a rule."""
    webhook = await read_webhook(request, webhook_id)
    rule = await _read_rule(request, webhook_id, name)
    typed = {
        "name": name,
        "eventTypes": "\n".join(rule.event_types),
        "where": json.dumps(document_of(rule.where), ensure_ascii=False, indent=2)
        if rule.where
        else "",
        "event": "",
    }
    return await _render_form(request, webhook, name, typed)


@router.post("/rules/{name}", operation_id="putRule")
async def change_rule(webhook_id: str, name: str, request: ChangeRequest) -> Response:
    """Change a rule."""
    await _read_rule(request, webhook_id, name)
    return await _submit(request, webhook_id, name)


@router.get("/rules/{name}/delete")
async def deletion_page(webhook_id: str, name: str, request: EditorRequest) -> Response:
    """Ask for confirmation."""
    webhook = await read_webhook(request, webhook_id)
    rule = await _read_rule(request, webhook_id, name)
    return await request.render("rule_delete.html", webhook=webhook, rule=rule)


@router.post("/rules/{name}/delete", operation_id="deleteRule")
async def delete_rule(webhook_id: str, name: str, request: ChangeRequest) -> Response:
    """Delete a rule."""
    await run_in_threadpool(
        request.services.store.delete_rule,
        webhook_id,
        name,
        of_account=request.key.account_filter,
    )
    return request.redirect(_rules_url(webhook_id, "rule-delete"))


async def _submit(request: Submission, webhook_id: str, name: str | None) -> Response:
    """Store or test the rule of the editor; `name` is None for a new rule."""
    services, key = request.services, request.key
    webhook = await read_webhook(request, webhook_id)
    typed = {each: request.form[each] for each in FIELDS} | ({} if name is None else {"name": name})
    given = {
        "name": typed["name"],
        "eventTypes": typed["eventTypes"].split(),
        "where": typed["where"] or "{}",
    }
    operation = "matchRules" if request.form["do"] == _TEST else "putRule"
    try:
        body = parse_body(_TypedRule, given)
        rule = Rule(webhook.id, body.name, tuple(body.event_types), body.conditions)
        if operation == "matchRules":
            sample = parse_body(_TypedEvent, {"event": typed["event"]}).event.sample(now_ms())
            match = await run_in_threadpool(match_sample, services, key, webhook_id, sample, rule)
            request.log_change(200, operation=operation)
            return await _render_form(request, webhook, name, typed, match=match)
        await run_in_threadpool(_store_rule, request, rule, is_new=name is None)
    except REJECTIONS as error:
        rejection = request.reject(error, FIELDS, operation)
        return await _render_form(request, webhook, name, typed, rejection)
    return request.redirect(_rules_url(webhook_id, "rule-save"), f"{webhook_id}/{rule.name}")


def _store_rule(request: PageRequest, rule: Rule, *, is_new: bool) -> None:
    """Store a rule. Blocks.

    Raises:
        InvalidRequest: `is_new`, and the webhook has a rule of this name.
        TooManyRules.
        StoreUnavailable.
    """
    store, of_account = request.services.store, request.key.account_filter
    if is_new:
        with suppress(RuleNotFound):
            store.rule(rule.webhook_id, rule.name, of_account=of_account)
            allowed = "a name that no other rule of the webhook has"
            raise InvalidRequest(fields=[FieldError("name", rule.name, allowed)])
    store.put_rule(rule, of_account=of_account)


async def _render_rules(
    request: PageRequest,
    webhook_id: str,
    test: RuleTest,
    cursor: str | None = None,
    status: int = 200,
) -> Response:
    webhook = await read_webhook(request, webhook_id)
    page, rows = await run_in_threadpool(_read_rules, request.services, webhook_id, cursor)
    url = f"{WEBHOOKS}/{webhook_id}/rules"
    return await request.render(
        "rules.html",
        status,
        webhook=webhook,
        rules=rows,
        next_url=page.next_cursor and page_url(url, {"cursor": page.next_cursor}),
        is_later_page=cursor is not None,
        rule_test=test,
        matches_shown=MATCHES_SHOWN,
    )


def _read_rules(
    services: Services, webhook_id: str, cursor: str | None
) -> tuple[Page[Rule], list[RuleRow]]:
    page = services.store.rules(webhook_id, cursor, ROWS)
    return page, rule_rows(services, webhook_id, page.items)


def rule_rows(services: Services, webhook_id: str, rules: Sequence[Rule]) -> list[RuleRow]:
    """Return the rows of a webhook's rules. Blocks.

    Raises:
        The errors of `find_covered_names`.
    """
    covered = find_covered_names(services, webhook_id, rules)
    return [
        RuleRow(rule.name, rule.event_types, condition_texts(rule.where), rule.name in covered)
        for rule in rules
    ]


def condition_texts(where: Conditions) -> tuple[tuple[str, str], ...]:
    """Return the paths of conditions, each with its value or pattern as JSON."""
    return tuple(
        (path, json.dumps(condition, ensure_ascii=False))
        for path, condition in document_of(where).items()
    )


async def _render_form(
    request: PageRequest,
    webhook: Webhook,
    name: str | None,
    typed: Mapping[str, str],
    rejection: FormRejection | None = None,
    match: SampleMatch | None = None,
) -> Response:
    return await request.render_form(
        "rule_edit.html", rejection, webhook=webhook, name=name, typed=typed, match=match
    )


async def _read_rule(request: PageRequest, webhook_id: str, name: str) -> Rule:
    return await run_in_threadpool(
        request.services.store.rule, webhook_id, name, of_account=request.key.account_filter
    )


def _rules_url(webhook_id: str, code: str) -> str:
    return f"{WEBHOOKS}/{webhook_id}/rules?{flash_query(code)}"
