"""Choosing the window of a replay on the plot of missed hours: by pointer, touch and keyboard."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest
from playwright.sync_api import FloatRect, Page, expect

from app.domain.accounts import Scope
from app.domain.hours import HOUR_MS
from app.domain.model import Webhook
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.domain.windows import format_time
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium, Visitor
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.service.console_service import ConsoleScene, sign_in
from tests.support.service.live_service import now_ms

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]

FORM: Final = "form[data-plot]"


class Outage(NamedTuple):
    """A webhook that missed events in two hours, and the key of its owner."""

    key: str
    webhook: Webhook
    latest_ms: int


@pytest.fixture(scope="module")
def outage(scene: ConsoleScene) -> Outage:
    key = scene.key("picker", Scope.DEVELOPER)
    with ReceiverThread() as receiver:
        webhook = scene.webhook_of("picker", receiver)
    latest_ms = (now_ms() // HOUR_MS - 10) * HOUR_MS
    tallies = [
        DeliveryTally(start, failed=4, missed_until_ms=start + 60_000, missed_at_ms=start + 60_000)
        for start in (latest_ms - 20 * HOUR_MS, latest_ms)
    ]
    counted = [CountedTally(webhook.id, Span.EVENT, tally) for tally in tallies]
    scene.store.add_tallies(counted, origin="here")
    return Outage(key, webhook, latest_ms)


@pytest.fixture
def page(chromium: Chromium, scene: ConsoleScene, outage: Outage) -> Iterator[Page]:
    """Yield the page of the webhook."""
    with chromium.visitor(scene.origin) as visitor:
        yield open_page(visitor, outage)


def open_page(visitor: Visitor, outage: Outage) -> Page:
    sign_in(visitor, outage.key, f"/console/webhooks/{outage.webhook.id}")
    return visitor.page


class Plot:
    """The plot of missed hours on a page. Hours count from its left edge."""

    def __init__(self, page: Page) -> None:
        form = page.locator(FORM)
        self._start_ms, end_ms, self._present_ms = (
            int(form.get_attribute(f"data-{name}") or 0) for name in ("start", "end", "present")
        )
        self.hours = (end_ms - self._start_ms) // HOUR_MS
        self.picker = page.get_by_role("slider", name="Hour")
        self.picker.scroll_into_view_if_needed()

    def point(self, hour: int) -> tuple[float, float]:
        """Return the middle of an hour."""
        box: FloatRect | None = self.picker.bounding_box()
        assert box is not None
        return box["x"] + box["width"] * (hour + 0.5) / self.hours, box["y"] + box["height"] / 2

    def hour_of(self, time_ms: int) -> int:
        """Return the hour of a time."""
        return (time_ms - self._start_ms) // HOUR_MS

    def window(self, first: int, last: int) -> tuple[str, str]:
        """Return the values of the fields when these hours are selected."""
        to_ms = min(self._start_ms + (last + 1) * HOUR_MS, self._present_ms)
        return _field(self._start_ms + first * HOUR_MS), _field(to_ms)


def _field(time_ms: int) -> str:
    return format_time(time_ms)[:19]


def window_in(page: Page) -> tuple[str, str]:
    """Return the values of the fields, complete as the form has them."""
    form = page.locator(FORM)
    values = form.evaluate("each => [each.elements.from.value, each.elements.to.value]")
    first, last = (_with_seconds(each) for each in values)
    return first, last


def _with_seconds(text: str) -> str:
    """Return the value of a field with its seconds, which browsers leave out if they are zero."""
    return text if len(text) > 16 else f"{text}:00"


def test_dragging_over_the_plot_fills_the_form_of_a_new_replay(page: Page, outage: Outage) -> None:
    plot = Plot(page)
    for first, last in ((20, 30), (90, 40)):
        page.mouse.move(*plot.point(first))
        page.mouse.down()
        page.mouse.move(*plot.point(last), steps=3)
        page.mouse.up()
        assert window_in(page) == plot.window(min(first, last), max(first, last))
    expect(page.locator(FORM)).to_contain_text("Window selected.")
    assert_usable(page)
    page.get_by_role("button", name="Replay this window").click()
    expect(page.get_by_role("heading", name="New replay")).to_be_visible()
    values = [page.get_by_label(name).input_value() for name in ("From (UTC)", "To, exclusive")]
    assert tuple(map(_with_seconds, values)) == plot.window(40, 90)
    assert page.get_by_label("Webhook", exact=True).input_value() == outage.webhook.id
    expect(page.get_by_label("Only events not yet delivered")).to_be_checked()


def test_two_clicks_choose_the_first_and_the_last_hour_up_to_the_present(page: Page) -> None:
    plot = Plot(page)
    last = plot.hours - 1
    page.mouse.click(*plot.point(50))
    assert window_in(page) == plot.window(50, 50)
    expect(page.locator(FORM)).to_contain_text("Choose the last hour.")
    page.mouse.click(*plot.point(last))
    assert window_in(page) == plot.window(50, last)
    # The next click begins another window.
    page.mouse.click(*plot.point(7))
    assert window_in(page) == plot.window(7, 7)


def test_two_taps_choose_a_window_and_a_swipe_too(page: Page) -> None:
    session = page.context.new_cdp_session(page)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
    plot = Plot(page)

    def touch(kind: str, *hours: int) -> None:
        points = [dict(zip("xy", plot.point(hour), strict=True)) for hour in hours]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    for hour in (80, 60):
        touch("touchStart", hour)
        touch("touchEnd")
    assert window_in(page) == plot.window(60, 80)
    touch("touchStart", 10)
    for hour in (20, 30, 35):
        touch("touchMove", hour)
    touch("touchEnd")
    assert window_in(page) == plot.window(10, 35)
    session.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
    session.detach()


def test_the_keyboard_chooses_a_window(page: Page, outage: Outage) -> None:
    plot = Plot(page)
    last = plot.hours - 1
    missed = plot.hour_of(outage.latest_ms)
    plot.picker.focus()
    page.keyboard.press("Home")
    expect(plot.picker).to_have_attribute("aria-valuenow", "1")
    page.keyboard.press("End")
    for _ in range(last - missed):
        page.keyboard.press("ArrowLeft")
    words = re.compile("4 missed, not replayed")
    expect(plot.picker).to_have_attribute("aria-valuetext", words)
    page.keyboard.press("Enter")
    page.keyboard.press("PageDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert window_in(page) == plot.window(missed - 23, missed)


def test_without_javascript_the_form_has_the_window_of_all_missed_hours(
    chromium: Chromium, scene: ConsoleScene, outage: Outage
) -> None:
    with chromium.visitor(scene.origin, javascript=False) as visitor:
        page = open_page(visitor, outage)
        expect(page.get_by_role("slider")).to_have_count(0)
        page.get_by_role("button", name="Replay this window").click()
        assert_filled(page, "To, exclusive", outage.latest_ms + HOUR_MS)


def assert_filled(page: Page, label: str, time_ms: int) -> None:
    """Assert that a field of the form of a new replay has a time."""
    assert _with_seconds(page.get_by_label(label).input_value()) == _field(time_ms)
