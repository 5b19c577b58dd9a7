"""The rules of a webhook in the console: the list, the editor, and the test of a sample event."""

import json
import logging
from typing import Any

import pytest

from app.console import rules as rule_pages
from app.domain.grants import Grant
from app.domain.model import Webhook
from app.domain.rules import Rule, alternatives_of
from app.store import Store
from app.store.errors import RuleNotFound
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage

pytestmark = pytest.mark.anyio

ROWS = ".//div[@aria-label='Event types by rule']//tbody/tr"
RESULT = ".//section[@aria-label='Result of the test']"
FORM = ".//main//form"

HOSTILE = "</textarea><script>alert(1)</script>\"'>"


def page_of(webhook: Webhook) -> str:
    return f"/console/webhooks/{webhook.id}"


def facts(page: HtmlPage) -> dict[str, str]:
    """Return the result of a test."""
    return dict(zip(page.texts(f"{RESULT}//dt"), page.texts(f"{RESULT}//dd"), strict=True))


async def saved(client: ConsoleClient, path: str, form: dict[str, str]) -> HtmlPage:
    """Return the page that a form redirects to."""
    answer = await client.post(path, form)
    assert answer.status_code == 303, answer.text
    return await client.page(answer.headers["location"])


async def test_a_rule_is_added_changed_and_deleted(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    page = await developers_client.page(page_of(webhook))
    (add,) = [link for link in page.all(".//main//a") if link.text == "Add rule"]
    path = add.get("href", "")
    assert (await developers_client.page(path)).fields(FORM).keys() == {
        *("csrf", "name", "eventTypes", "where", "event"),
    }
    where = '{"data": {"total": [{"numeric": [">=", 100]}]}, "data.country": "DE"}'
    filled = {"name": "large", "eventTypes": "order.*\n invoice.paid", "where": where}
    page = await saved(developers_client, path, filled)
    assert page.texts(".//p[@role='status']")[-1].startswith("Rule saved.")
    stored = store.rule(webhook.id, "large")
    assert stored.event_types == ("order.*", "invoice.paid")
    assert dict(stored.where) == {
        "data.total": alternatives_of([{"numeric": [">=", 100]}]),
        "data.country": "DE",
    }
    (row,) = page.all(ROWS)
    (link,) = row.findall("th/a")
    path = link.get("href", "")
    shown = (await developers_client.page(path)).fields(FORM)
    assert "name" not in shown
    assert shown["eventTypes"].split() == ["order.*", "invoice.paid"]
    assert json.loads(shown["where"]) == {
        "data.total": [{"numeric": [">=", 100]}],
        "data.country": "DE",
    }
    await saved(developers_client, path, shown | {"where": " ", "name": "ignored"})
    assert store.rule(webhook.id, "large").where == ()
    assert [rule.name for rule in store.rules(webhook.id).items] == ["large"]

    confirmation = await developers_client.page(f"{path}/delete")
    page = await saved(developers_client, f"{path}/delete", confirmation.fields(FORM))
    assert page.texts(".//p[@role='status']")[-1].startswith("Rule deleted.")
    assert "No rules" in page.main
    for gone in (path, f"{path}/delete"):
        assert (await developers_client.get(gone)).status_code == 404
        assert (await developers_client.post(gone, filled)).status_code == 404
    with pytest.raises(RuleNotFound):
        store.rule(webhook.id, "large")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "not a name", "a text that matches"),
        ("name", "", "a text that matches"),
        ("name", "taken", "a name that no other rule of the webhook has"),
        ("eventTypes", " ", "1 or more"),
        ("eventTypes", "ä", "eventTypes[0]"),
        ("where", '{"data.userId": }', "line 1 column 17"),
        ("where", "[]", "where"),
        ("where", "[" * 20_000, "JSON"),
        ("where", '{"data.userId": [{"prefx": "4"}]}', "where.data.userId[0]"),
        ("where", HOSTILE, "JSON"),
    ],
)
async def test_an_invalid_rule_is_shown_again_with_its_error(
    developers_client: ConsoleClient,
    store: Store,
    webhook: Webhook,
    field: str,
    value: str,
    words: str,
) -> None:
    store.put_rule(Rule(webhook.id, "taken", ("dm.*",)))
    filled = {"name": "vip", "eventTypes": "dm.*", "where": HOSTILE if field == "name" else ""}
    if field == "name":
        filled["where"] = '{"data.name": "<script>alert(1)</script>"}'
    filled |= {field: value}
    page = await developers_client.posted(f"{page_of(webhook)}/new-rule", filled, 400)
    assert words in page.error_of(field)
    assert page.field(field) == value.strip()
    assert not page.all(".//main//script")
    assert store.rules(webhook.id).items == (Rule(webhook.id, "taken", ("dm.*",)),)


async def test_every_invalid_field_of_a_rule_is_marked(
    developers_client: ConsoleClient, webhook: Webhook
) -> None:
    path = f"{page_of(webhook)}/new-rule"
    page = await developers_client.posted(path, {"name": "a b", "where": "{"}, 400)
    for field in ("name", "eventTypes", "where"):
        assert page.error_of(field)


async def test_the_limits_of_an_account_are_shown(
    developers_client: ConsoleClient, client: ConsoleClient, webhook: Webhook
) -> None:
    path = f"{page_of(webhook)}/new-rule"
    for number in range(20):
        await saved(developers_client, path, {"name": f"r{number}", "eventTypes": f"t{number}"})
    form = {"name": "one-more", "eventTypes": "t99"}
    page = await developers_client.posted(path, form, 409)
    assert "20" in page.texts(".//main//p[@role='alert']")[0]
    assert page.fields(FORM).items() >= form.items()


async def test_a_sample_event_shows_which_rules_match(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    store.put_rule(Rule(webhook.id, "vip", ("dm.*",), (("data.userId", "42"),)))
    store.put_rule(Rule(webhook.id, "all", ("dm.sent",)))
    store.put_rule(Rule(webhook.id, "other", ("order.*",)))
    path = f"{page_of(webhook)}/rule-matches"
    event = '{"type": "dm.sent", "data": {"userId": "42"}, "id": "evt_1"}'
    page = await developers_client.posted(path, {"event": event})
    assert "would not be addressed" in page.texts(RESULT)[0]
    assert facts(page)["Matching rules"] == "all, vip"
    assert facts(page)["Covered"].startswith("no")
    assert page.field("event") == event

    store.put_grant(Grant(webhook.account_id, "dms", ("dm.*",)))
    page = await developers_client.posted(path, {"event": event})
    assert "This event would be addressed to the webhook." in page.texts(RESULT)[0]
    assert facts(page) == {"Matching rules": "all, vip", "Covered": "yes"}
    cells = [text.split()[-1] for text in page.texts(f"{ROWS}/td[4]")]
    assert cells == ["matches", "match", "matches"]

    own = event.replace("42", "43").replace("}, ", f'}}, "accountId": "{webhook.account_id}", ')
    assert facts(await developers_client.posted(path, {"event": own})) == {
        "Matching rules": "all",
        "Covered": "yes",
    }
    none = await developers_client.posted(path, {"event": '{"type": "x", "data": {}}'})
    assert facts(none)["Matching rules"] == "none"


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ("", "JSON"),
        ("{", "JSON"),
        ('{"a":' * 900 + "1" + "}" * 900, "event"),
        ('{"type": "x", "data": ' + '{"a":' * 994 + "1" + "}" * 995, "JSON"),
        ('{"data": {}}', "event.type"),
        ('{"type": "x", "data": 1}', "event.data"),
        (HOSTILE, "JSON"),
    ],
)
async def test_an_invalid_sample_event_is_shown_again_with_its_error(
    developers_client: ConsoleClient, webhook: Webhook, event: str, words: str
) -> None:
    path = f"{page_of(webhook)}/rule-matches"
    page = await developers_client.posted(path, {"event": event}, 400)
    assert words in page.error_of("event")
    assert page.field("event") == event
    assert not page.all(RESULT)
    assert not page.all(".//main//script")


async def test_a_rule_is_tested_before_it_is_saved(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    stored = Rule(webhook.id, "vip", ("dm.*",), (("data.userId", "1"),))
    store.put_rule(stored)
    store.put_rule(Rule(webhook.id, "all", ("*",)))
    form = {"eventTypes": "dm.*", "where": '{"data.userId": ["42"]}', "do": "test"}
    form |= {"event": '{"type": "dm.sent", "data": {"userId": "42"}}'}
    result = ".//main//p[@role='status']"
    for name in ("new-rule", "rules/vip"):
        path = f"{page_of(webhook)}/{name}"
        page = await developers_client.posted(path, form | {"name": "draft"})
        words = "The rule matches the event, but no grant of the account covers the event."
        assert page.texts(result) == [words]
        # What was typed stays in the form.
        assert page.fields(FORM)["where"] == form["where"]
        other = form["event"].replace("42", "1")
        page = await developers_client.posted(path, form | {"name": "draft", "event": other})
        assert page.texts(result) == ["The rule does not match the event."]
        page = await developers_client.posted(path, form | {"name": "draft", "event": "{}"}, 400)
        assert "event.type" in page.error_of("event")
        assert not page.texts(result)
    store.put_grant(Grant(webhook.account_id, "dms", ("dm.*",)))
    page = await developers_client.posted(f"{page_of(webhook)}/rules/vip", form)
    assert page.texts(result) == ["The rule matches the event."]
    assert store.rule(webhook.id, "vip") == stored
    assert len(store.rules(webhook.id).items) == 2


async def test_the_list_of_rules_has_pages_and_a_limited_result(
    developers_client: ConsoleClient,
    store: Store,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule_pages, "ROWS", 2)
    monkeypatch.setattr(rule_pages, "MATCHES_SHOWN", 2)
    for name in "abc":
        store.put_rule(Rule(webhook.id, name, ("*",), (("data.name", HOSTILE),)))
    first = await developers_client.page(f"{page_of(webhook)}/rules")
    assert first.texts(f"{ROWS}/th") == ["a", "b"]
    assert not first.all(".//main//script")
    (link,) = first.all(".//nav[@aria-label='Pages of rules']/a")
    second = await developers_client.page(link.get("href", ""))
    assert second.texts(f"{ROWS}/th") == ["c"]
    assert [each.text for each in second.all(".//nav[@aria-label='Pages of rules']/a")] == [
        "First page"
    ]
    event = json.dumps({"type": "x", "data": {"name": HOSTILE}})
    page = await developers_client.posted(f"{page_of(webhook)}/rule-matches", {"event": event})
    assert facts(page)["Matching rules"] == "a, b and 1 more"


async def test_changes_of_rules_are_audited(
    developers_client: ConsoleClient, webhook: Webhook, caplog: pytest.LogCaptureFixture
) -> None:
    path = page_of(webhook)
    caplog.set_level(logging.INFO)
    for action, form in (
        ("new-rule", {"name": "a b", "eventTypes": "x"}),
        ("new-rule", {"name": "vip", "eventTypes": "x"}),
        ("rules/vip", {"eventTypes": ""}),
        ("rules/vip", {"eventTypes": "y"}),
        ("rules/vip", {"eventTypes": "y", "do": "test", "event": '{"type": "x", "data": {}}'}),
        ("rule-matches", {"event": "{}"}),
        ("rule-matches", {"event": '{"type": "x", "data": {}}'}),
        ("rules/vip/delete", {}),
    ):
        await developers_client.post(f"{path}/{action}", form)
    records: list[Any] = [record for record in caplog.records if record.name == "rewind.audit"]
    rule = f"{webhook.id}/vip"
    assert [(record.action, record.target, record.status) for record in records] == [
        ("putRule", webhook.id, 400),
        ("putRule", rule, 303),
        ("putRule", rule, 400),
        ("putRule", rule, 303),
        ("matchRules", rule, 200),
        ("matchRules", webhook.id, 400),
        ("matchRules", webhook.id, 200),
        ("deleteRule", rule, 303),
    ]
