"""The sign-in page."""

import re

import pytest
from playwright.sync_api import expect

from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium
from tests.support.service.console_service import ConsoleScene, sign_in

pytestmark = pytest.mark.xdist_group("console")


@pytest.mark.parametrize("javascript", [True, pytest.param(False, marks=pytest.mark.long)])
def test_sign_in_returns_to_the_requested_page_and_sign_out_ends_the_session(
    chromium: Chromium, scene: ConsoleScene, javascript: bool
) -> None:
    key = scene.key()
    with chromium.visitor(scene.origin, javascript=javascript) as visitor:
        sign_in(visitor, key, "/console/jobs?state=ONGOING")
        visitor.page.get_by_role("button", name="Sign out").click()
        visitor.page.wait_for_url("/console/sign-in")
        visitor.go("/console/jobs")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Sign in")


def test_an_unknown_key_is_rejected(chromium: Chromium, scene: ConsoleScene) -> None:
    with chromium.visitor(scene.origin) as visitor:
        visitor.tolerate("status of 401")
        visitor.go("/console/jobs")
        visitor.page.get_by_label("API key").fill("rwk_" + "x" * 43)
        visitor.page.get_by_role("button", name="Sign in").click()
        expect(visitor.page.get_by_role("alert")).to_have_text("Unknown API key.")
        expect(visitor.page.get_by_label("API key")).to_have_attribute("aria-invalid", "true")
        assert_usable(visitor.page)


@pytest.mark.long
def test_the_sign_in_page_is_accessible(chromium: Chromium, scene: ConsoleScene) -> None:
    with chromium.visitor(scene.origin) as visitor:
        visitor.go("/console/sign-in")
        assert_usable(visitor.page)


@pytest.mark.long
def test_scripts_cannot_read_the_session_cookie(chromium: Chromium, scene: ConsoleScene) -> None:
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, scene.key())
        assert visitor.page.evaluate("document.cookie") == ""
        assert not re.search("rwk_[A-Za-z0-9]", visitor.page.content())
