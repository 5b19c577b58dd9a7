"""The life cycle of a webhook in the console."""

import json
import re

import pytest
from playwright.sync_api import Page, expect

from app.domain.accounts import Scope
from app.domain.grants import Grant
from app.domain.model import WebhookStatus
from app.domain.rules import Rule
from app.store.errors import WebhookNotFound
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.service.console_service import ConsoleScene, sign_in

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]

SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


def shown_secret(page: Page) -> str:
    secret = page.get_by_role("textbox", name="Secret").input_value()
    assert SECRET.fullmatch(secret), secret
    return secret


def test_a_webhook_is_registered_tested_edited_and_deleted_without_javascript(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("owner", Scope.DEVELOPER)
    with chromium.visitor(scene.origin, javascript=False) as visitor:
        page = visitor.page
        sign_in(visitor, key, "/console/webhooks")
        page.get_by_role("link", name="Register a webhook").click()
        page.get_by_label("URL").fill(receiver.url)
        page.get_by_label("Description").fill("orders of the shop")
        page.get_by_label("Event types").fill("order.* shipping.sent")
        page.get_by_role("button", name="Register").click()
        receiver.expect(shown_secret(page))
        page.get_by_role("link", name="Done").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("ENABLED")
        expect(page.get_by_role("region", name="Event types by rule")).to_contain_text(
            "shipping.sent"
        )
        webhook_id = page.url.rpartition("/")[2]

        page.get_by_role("button", name="Send test event").click()
        expect(page.get_by_text("Test delivered.")).to_be_visible()
        (test,) = [each for each in receiver.webhooks if b"rewind.test" in each.body]
        assert test.problem is None

        page.get_by_role("link", name="Rotate secret").click()
        page.get_by_label("Grace period").select_option("1 hour")
        page.get_by_role("button", name="Rotate secret").click()
        assert shown_secret(page) == scene.store.webhook(webhook_id).secret
        page.get_by_role("link", name="Done").click()
        # It is shown once.
        assert not SECRET.search(page.content())

        page.get_by_role("link", name="Edit").click()
        page.get_by_label("Description").fill("orders of both shops")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("Webhook updated.")).to_be_visible()
        expect(page.get_by_text("orders of both shops").first).to_be_visible()

        page.get_by_role("link", name="Disable").click()
        page.get_by_label("Reason").fill("the shop moves")
        page.get_by_role("button", name="Disable webhook").click()
        expect(page.get_by_text("the shop moves").first).to_be_visible()
        assert scene.store.webhook(webhook_id).status is WebhookStatus.DISABLED
        receiver.expect(None)
        page.get_by_role("button", name="Enable").click()
        expect(page.get_by_text("Receiver verified")).to_be_visible()
        assert scene.store.webhook(webhook_id).status is WebhookStatus.ENABLED

        page.get_by_role("link", name="Delete").click()
        page.get_by_role("button", name="Delete webhook").click()
        expect(page.get_by_text("Webhook and secret deleted")).to_be_visible()
        with pytest.raises(WebhookNotFound):
            scene.store.webhook(webhook_id)


def test_a_rule_is_added_tested_changed_and_deleted_without_javascript(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("rules", Scope.DEVELOPER)
    webhook = scene.webhook_of("rules", receiver)
    scene.store.put_grant(Grant(webhook.account_id, "orders", ("order.*",)))
    path = f"/console/webhooks/{webhook.id}"
    with chromium.visitor(scene.origin, javascript=False) as visitor:
        visitor.tolerate("status of 400")
        page = visitor.page
        sign_in(visitor, key, path)
        page.get_by_role("link", name="Add rule").click()
        page.get_by_label("Name").fill("large")
        page.get_by_label("Event types").fill("order.* refund.*")
        page.get_by_label("Conditions").fill('{"data.total": [{"numeric": [">", "100"]}]}')
        page.get_by_role("button", name="Save rule").click()
        expect(page.get_by_role("alert")).to_contain_text("where.data.total[0]")
        page.get_by_label("Conditions").fill('{"data.total": [{"numeric": [">", 100]}]}')
        page.get_by_role("button", name="Save rule").click()
        expect(page.get_by_text("Rule saved.")).to_be_visible()
        row = page.get_by_role("region", name="Event types by rule").get_by_role("row").nth(1)
        expect(row).to_contain_text("yes")

        visitor.go(path)
        page.get_by_text("Test a sample event").click()
        result = page.get_by_role("status", name="Result of the test")
        for total, found in ((100, "none"), (101, "large")):
            event = {"type": "order.paid", "data": {"total": total}}
            page.get_by_label("Sample event").fill(json.dumps(event))
            page.get_by_role("button", name="Test rules").click()
            expect(result.get_by_role("definition").first).to_have_text(found)
        expect(row).to_contain_text("matches")
        assert len(page.content()) < 100_000
        assert not receiver.webhooks

        result.get_by_role("link", name="large").click()
        page.get_by_label("Conditions").fill("")
        page.get_by_text("Test before saving").click()
        page.get_by_label("Sample event").fill('{"type": "order.paid", "data": {}}')
        page.get_by_role("button", name="Test rule").click()
        expect(page.get_by_text("The rule matches the event.")).to_be_visible()
        page.get_by_role("button", name="Save rule").click()
        expect(row).not_to_contain_text("data.total")
        page.get_by_role("link", name="large").click()
        page.get_by_role("link", name="Delete").click()
        page.get_by_role("button", name="Delete rule").click()
        expect(page.get_by_text("No rules")).to_be_visible()


def test_forms_of_a_webhook_are_accessible(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("forms", Scope.DEVELOPER)
    webhook = scene.webhook_of("forms", receiver)
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, key, "/console/webhooks/new")
        assert_usable(visitor.page)
        scene.store.put_rule(Rule(webhook.id, "vip", ("dm.*",), (("data.userId", "42"),)))
        forms = ("edit", "rotate", "disable", "delete", "rules", "new-rule", "rules/vip/delete")
        for form in forms:
            visitor.go(f"/console/webhooks/{webhook.id}/{form}")
            assert_usable(visitor.page)


def test_the_editor_of_a_rule_and_the_result_of_a_test_are_accessible(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("rule-forms", Scope.DEVELOPER)
    webhook = scene.webhook_of("rule-forms", receiver)
    scene.store.put_rule(Rule(webhook.id, "vip", ("dm.*",)))
    path = f"/console/webhooks/{webhook.id}/rules"
    with chromium.visitor(scene.origin) as visitor:
        visitor.tolerate("status of 400")
        page = visitor.page
        sign_in(visitor, key, f"{path}/vip")
        page.get_by_label("Conditions").fill('{"data.userId": [{"prefx": "4"}]}')
        page.get_by_role("button", name="Save rule").click()
        expect(page.get_by_role("alert")).to_contain_text("where.data.userId[0]")
        page.get_by_text("Test before saving").click()
        assert_usable(page)
        visitor.go(path)
        page.get_by_text("Test a sample event").click()
        page.get_by_label("Sample event").fill('{"type": "dm.sent", "data": {}}')
        page.get_by_role("button", name="Test rules").click()
        expect(page.get_by_role("status", name="Result of the test")).to_contain_text("vip")
        assert_usable(page)


def test_an_invalid_url_is_shown_at_its_field(chromium: Chromium, scene: ConsoleScene) -> None:
    with chromium.visitor(scene.origin) as visitor:
        visitor.tolerate("status of 4")
        page = visitor.page
        sign_in(visitor, scene.key("refused", Scope.DEVELOPER), "/console/webhooks/new")
        page.get_by_label("URL").fill("ftp://example.com/<script>alert(1)</script>")
        page.get_by_role("button", name="Register").click()
        expect(page.get_by_role("alert")).to_be_visible()
        expect(page.get_by_label("URL")).to_have_attribute("aria-invalid", "true")
        assert_usable(page)
