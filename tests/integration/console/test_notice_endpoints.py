"""The life cycle of a notice endpoint in the console."""

import pytest
from playwright.sync_api import expect

from app.domain.account_notices import NewNoticeEndpoint
from app.domain.accounts import DEFAULT_ACCOUNT, Scope
from app.store import NotFound
from app.webhooks.signing import new_secret
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.service.console_service import ConsoleScene, sign_in

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]


def test_an_endpoint_is_registered_tested_edited_and_deleted_without_javascript(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("notified", Scope.DEVELOPER)
    with chromium.visitor(scene.origin, javascript=False) as visitor:
        page = visitor.page
        sign_in(visitor, key, "/console/webhooks")
        page.get_by_role("link", name="Notice endpoints").click()
        page.get_by_role("link", name="Register an endpoint").click()
        page.get_by_label("URL").fill(receiver.url)
        page.get_by_label("Description").fill("on-call")
        page.get_by_label("webhook.disabled").check()
        page.get_by_role("button", name="Register").click()
        receiver.expect(page.get_by_role("textbox", name="Secret").input_value())
        page.get_by_role("link", name="Done").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("ENABLED")
        endpoint_id = page.url.rpartition("/")[2]

        page.get_by_role("button", name="Send test event").click()
        expect(page.get_by_text("Test delivered.")).to_be_visible()
        page.get_by_role("link", name="Edit").click()
        expect(page.get_by_label("webhook.disabled")).to_be_checked()
        page.get_by_label("replay.failed").check()
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("webhook.disabled, replay.failed")).to_be_visible()

        page.get_by_role("link", name="Rotate secret").click()
        page.get_by_role("button", name="Rotate secret").click()
        secret = page.get_by_role("textbox", name="Secret").input_value()
        assert secret == scene.store.notice_endpoint(endpoint_id).secret
        page.get_by_role("link", name="Done").click()
        assert secret not in page.content()

        page.get_by_role("link", name="Disable").click()
        page.get_by_label("Reason").fill("holidays")
        page.get_by_role("button", name="Disable endpoint").click()
        expect(page.get_by_text("holidays").first).to_be_visible()
        page.get_by_role("button", name="Enable").click()
        expect(page.get_by_text("Receiver verified")).to_be_visible()
        page.get_by_role("link", name="Delete").click()
        page.get_by_role("button", name="Delete endpoint").click()
        expect(page.get_by_text("Endpoint and secret deleted")).to_be_visible()
        with pytest.raises(NotFound):
            scene.store.notice_endpoint(endpoint_id)


def test_the_pages_of_endpoints_are_accessible(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(), "/console/notice-endpoints/new")
        assert_usable(page)
        page.get_by_label("URL").fill(receiver.url)
        page.get_by_role("button", name="Register").click()
        expect(page.get_by_role("textbox", name="Secret")).to_be_visible()
        assert_usable(page)
        page.get_by_role("link", name="Done").click()
        page.get_by_role("button", name="Send test event").click()
        expect(page.get_by_text("Test delivered.")).to_be_visible()
        assert_usable(page)
        visitor.go("/console/notice-endpoints")
        assert_usable(page)
        page.locator("tbody th a").first.click()
        page.wait_for_url("**/notice-endpoints/*")
        endpoint = page.url.removeprefix(scene.origin)
        for form in ("edit", "rotate", "disable", "delete"):
            visitor.go(f"{endpoint}/{form}")
            assert_usable(page)


def test_the_pages_of_an_address_are_accessible(chromium: Chromium, scene: ConsoleScene) -> None:
    url = f"mailto:{'o' * 64}@{'a' * 60}.{'b' * 60}.example.com"
    new = NewNoticeEndpoint(DEFAULT_ACCOUNT, url, "", new_secret())
    endpoint = scene.store.create_notice_endpoint(new)
    with chromium.visitor(scene.origin) as visitor:
        path = f"/console/notice-endpoints/{endpoint.id}"
        sign_in(visitor, scene.key(), path)
        page = visitor.page
        expect(page.get_by_label("Code")).to_be_visible()
        assert_usable(page)
        visitor.tolerate("status of 422")
        page.get_by_label("Code").fill("AAAA-AAAA-AAAA")
        page.get_by_role("button", name="Confirm").click()
        expect(page.get_by_role("alert")).to_contain_text("no valid code")
        assert_usable(page)
        for form in ("", "/edit", "/disable", "/delete"):
            visitor.go(f"{path}{form}")
            assert_usable(page)
        visitor.go("/console/notice-endpoints")
        assert_usable(page)
