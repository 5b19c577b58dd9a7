"""Keyboard shortcuts, and buttons that copy."""

import pytest
from playwright.sync_api import expect

from app.domain.accounts import Scope
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.service.console_service import ConsoleScene, sign_in

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]


def test_keys_open_pages_move_between_rows_and_can_be_turned_off(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("typist", Scope.DEVELOPER)
    for name in ("one", "two"):
        scene.webhook_at("typist", receiver.url, name)
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, key, "/console/jobs")
        page.keyboard.type("go")
        page.wait_for_url("/console/overview")
        page.keyboard.type("gd")
        page.wait_for_url("/console/deliveries")
        expect(page.locator("tbody th a")).to_have_count(2)
        page.keyboard.press("j")
        page.keyboard.press("j")
        page.keyboard.press("k")
        expect(page.locator("tbody th a").first).to_be_focused()
        page.keyboard.press("/")
        search = page.get_by_label("Event, delivery or webhook id")
        expect(search).to_be_focused()
        # Keys that are typed into a field are no shortcuts.
        page.keyboard.type("gj?")
        expect(search).to_have_value("gj?")
        search.blur()

        help_of_keys = page.get_by_role("dialog", name="Keyboard shortcuts")
        page.keyboard.press("?")
        expect(help_of_keys).to_be_visible()
        assert_usable(page)
        help_of_keys.get_by_label("Enable shortcuts").uncheck()
        help_of_keys.get_by_role("button", name="Close").click()
        expect(help_of_keys).to_be_hidden()
        page.reload()
        page.keyboard.type("?gj")
        page.get_by_role("button", name="Keyboard shortcuts").click()
        expect(help_of_keys.get_by_label("Enable shortcuts")).not_to_be_checked()
        assert page.url == f"{scene.origin}/console/deliveries"
        page.evaluate("localStorage.clear()")


def test_an_id_is_copied(chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread) -> None:
    key = scene.key("copies", Scope.DEVELOPER)
    webhook = scene.webhook_of("copies", receiver)
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        sign_in(visitor, key, f"/console/webhooks/{webhook.id}")
        page.get_by_role("button", name="Copy webhook id").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        assert page.evaluate("navigator.clipboard.readText()") == webhook.id
        page.context.clear_permissions()
