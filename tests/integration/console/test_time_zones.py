"""Times in UTC, or in the zone of the browser."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, expect

from app.domain.accounts import Scope
from app.domain.model import Window
from app.domain.tallies import Span
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, sign_in
from tests.support.service.live_service import event

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]

ZONE: Final = "Asia/Kathmandu"
AHEAD: Final = timedelta(hours=5, minutes=45)
"""How far the zone is ahead of UTC, throughout the year."""


@pytest.fixture
def page(chromium: Chromium, scene: ConsoleScene) -> Iterator[Page]:
    """Yield a page of a browser in `ZONE`, signed in as a developer."""
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, scene.key("zones", Scope.DEVELOPER))
        browser = visitor.page.context.browser
        assert browser is not None
        context = browser.new_context(
            base_url=scene.origin,
            storage_state=visitor.page.context.storage_state(),
            timezone_id=ZONE,
        )
        try:
            yield context.new_page()
        finally:
            context.close()


def local_time(time: Locator) -> datetime:
    """Return the time of an element, as clocks in `ZONE` show it."""
    return datetime.fromisoformat(time.get_attribute("datetime") or "") + AHEAD


def test_times_of_pages_plots_and_updates_are_shown_in_the_chosen_zone(
    page: Page, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    webhook = scene.webhook_of("zones", receiver)
    scene.owe(webhook, event(1))
    replay = scene.replay(webhook, Window(0, 1), origin="west")
    page.goto(f"/console/jobs/{replay.id}")
    times = page.locator("#parameters + dl time")
    expect(times.first).to_have_text("1970-01-01 00:00:00")
    page.get_by_role("button", name="Use local times").click()
    expect(times.first).to_have_text("1970-01-01 05:30:00")
    expect(times.last).to_have_text(f"{local_time(times.last):%Y-%m-%d %H:%M:%S}")
    expect(page.get_by_text("Times are local")).to_be_visible()
    # An update has its times in UTC.
    scene.store.pause_replay(replay.id)
    entries = page.locator("ol.timeline li")
    expect(entries).to_have_count(2)
    paused = entries.first.locator("time")
    expect(paused).to_have_text(f"{local_time(paused):%Y-%m-%d %H:%M:%S}")
    assert_usable(page)

    # The choice is kept.
    until(lambda: scene.store.tallies(webhook.id, Span.EVENT, 0), "the delivery is counted")
    page.goto(f"/console/webhooks/{webhook.id}?range=24h")
    ends = page.locator(".plot-times time")
    start = local_time(ends.first)
    expect(ends.first).to_have_text(f"{start:%m-%d %H:%M}")
    bar = page.locator("svg g title")
    expect(bar).to_contain_text(": 1 delivered, 0 missed")
    assert (bar.text_content() or "")[6:11].endswith(":45")
    page.get_by_role("button", name="Use UTC").click()
    expect(ends.first).to_have_text(f"{start - AHEAD:%m-%d %H:%M}")
    assert (bar.text_content() or "")[6:11].endswith(":00")
    expect(page.get_by_text("All times are UTC.")).to_be_visible()
