"""The life cycle of a webhook in the console."""

import re

import pytest
from playwright.sync_api import Page, expect

from app.domain.accounts import Scope
from app.domain.model import WebhookStatus
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


def test_forms_of_a_webhook_are_accessible(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("forms", Scope.DEVELOPER)
    webhook = scene.webhook_of("forms", receiver)
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, key, "/console/webhooks/new")
        assert_usable(visitor.page)
        for form in ("edit", "rotate", "disable", "delete"):
            visitor.go(f"/console/webhooks/{webhook.id}/{form}")
            assert_usable(visitor.page)


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
