"""Accessibility of every page with content, and the screenshots of the documentation.

`PAINT_CONSOLE=1 pytest tests/integration/console/test_pages.py` regenerates the screenshots of
docs/console.md.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from playwright.sync_api import Page, expect

from app.domain.accounts import Scope
from app.domain.model import Replay, Webhook, Window
from app.domain.pipeline import PipelineRun, RunOutcome
from app.domain.states import TERMINAL
from app.domain.tallies import CountedTally, DeliveryTally, Span
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium, Visitor
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, sign_in
from tests.support.service.live_service import event, now_ms

pytestmark = pytest.mark.xdist_group("console")

IS_REGENERATING: Final = bool(os.environ.get("PAINT_CONSOLE"))
SCREENSHOTS: Final = Path(__file__).parents[3] / "docs" / "images" / "console"
SCREENSHOT_HEIGHTS: Final = {
    "deliveries": 780,
    "overview": 980,
    "jobs": 860,
    "job": 1_140,
    "webhook": 1_000,
    "messages": 720,
}
"""The screenshots and their heights, in pixels."""

SCREENSHOT_WIDTH: Final = 1_280

UNFOLD: Final = """() => [...document.querySelectorAll('main details')].slice(0, 3)
    .forEach(each => { each.open = true; })"""
"""Expands some of the collapsed parts. A page of messages has fifty of them."""

ACCOUNT: Final = "shop"
MINUTE_MS: Final = 60_000
SAMPLES: Final = 20 if IS_REGENERATING else 2
RUNNING_EVENTS: Final = 900 if IS_REGENERATING else 150

PAGES: Final = {
    "first": "/console/deliveries",
    "deliveries": "/console/webhooks/{webhook}/deliveries",
    "overview": "/console/overview?accountId={account}",
    "overview-of-days": "/console/overview?range=5d",
    "jobs": "/console/jobs?accountId={account}",
    "no-jobs": "/console/jobs?state=FAILED&accountId={account}",
    "job": "/console/jobs/{running}",
    "job-with-failures": "/console/jobs/{failing}",
    "cancel": "/console/jobs/{waiting}/cancel",
    "clone": "/console/replays/new?cloneOf={failing}",
    "webhooks": "/console/webhooks?accountId={account}",
    "webhook": "/console/webhooks/{webhook}",
    "log": "/console/log",
    "log-of-days": "/console/log?range=5d",
    "topic": "/console/log/topics/delivery_log",
    "messages": "/console/log/topics/delivery_log/messages",
    "groups": "/console/log/groups",
    "group": "/console/log/group?id=rewind-delivery",
    "processes": "/console/log/processes",
    "pipeline": "/console/log/pipeline",
    "not-found": "/console/jobs/rpl_missing",
}

MAIN_PAGES: Final = {"jobs", "job-with-failures", "webhook"}
"""The pages that `make test` checks; `make test-all` checks the others."""


class Shop(NamedTuple):
    """An account with jobs; the fields are parameters of `PAGES`."""

    account: str
    webhook: str
    running: str
    failing: str
    waiting: str


@pytest.fixture(scope="module")
def shop(scene: ConsoleScene) -> Iterator[Shop]:
    scene.key(ACCOUNT, Scope.DEVELOPER)
    with ReceiverThread() as orders, ReceiverThread() as shipping:
        yield _create_shop(scene, orders, shipping)
        orders.answer(204)


def _create_shop(scene: ConsoleScene, orders: ReceiverThread, shipping: ReceiverThread) -> Shop:
    accepting = scene.webhook_at(ACCOUNT, orders.url, "orders of the shop")
    failing_webhook = scene.webhook_at(ACCOUNT, shipping.url, "shipping")
    idle = scene.webhook_at(ACCOUNT, shipping.url, "newsletter")
    scene.put_rule(failing_webhook, "shipping.*", where={"data.carrier": "snail"})
    scene.missed(failing_webhook, *_events("shipping.sent", 30), ago_s=1)
    until(lambda: len(shipping.taken) >= 30, "the first events are delivered live")
    shipping.answer(503)
    failing = _finish_replay(
        scene, failing_webhook, scene.missed(failing_webhook, *_events("shipping.lost", 12))
    )
    _finish_replay(scene, accepting, scene.missed(accepting, *_events("order.paid", 40)))
    waiting = scene.replay(idle, _last_hour(), origin="west")
    scene.store.pause_replay(waiting.id)
    orders.answer(204, delay_s=0.2)
    scene.missed(accepting, *_events("order.sent", RUNNING_EVENTS), ago_s=1_200)
    running = scene.replay(accepting, _last_hour(), max_in_flight=3, event_types=("order.sent",))
    until(lambda: len(scene.store.samples(running.id)) >= SAMPLES, "the plot has points")
    until(lambda: scene.store.missed_hours(failing_webhook.id, 0), "what was missed is counted")
    _add_pipeline_runs(scene)
    scene.add_log_samples()
    if IS_REGENERATING:
        _add_past_hour(scene, accepting, failing_webhook)
    return Shop(accepting.account_id, failing_webhook.id, running.id, failing.id, waiting.id)


def _events(event_type: str, count: int) -> list[dict[str, Any]]:
    return [event(number, event_type, cents=number * 777 % 9_001) for number in range(count)]


def _finish_replay(scene: ConsoleScene, webhook: Webhook, window: Window) -> Replay:
    replay = scene.replay(webhook, window)
    until(lambda: scene.store.replay(replay.id).state in TERMINAL, "it is over")
    return replay


def _last_hour() -> Window:
    return Window(now_ms() - 60 * MINUTE_MS, now_ms())


def _add_past_hour(scene: ConsoleScene, accepting: Webhook, failing: Webhook) -> None:
    """Add deliveries of the hour before the shop was opened, for the screenshots."""
    width_ms = Span.SETTLED.width_ms
    first_ms = now_ms() // width_ms * width_ms
    counted = []
    for ago in range(1, 13):
        delivered = 900 + 331 * ago % 290
        missed = delivered // 9 if ago in (4, 5, 6) else 0
        took = (delivered // 2, delivered // 3, delivered // 6, missed, 0, 0, 0, missed)
        start_ms = first_ms - ago * width_ms
        counted += [
            CountedTally(accepting.id, Span.SETTLED, DeliveryTally(start_ms, delivered, took=took)),
            CountedTally(failing.id, Span.SETTLED, DeliveryTally(start_ms, 80, failed=missed)),
        ]
    scene.store.add_tallies(counted, origin="here")


def _add_pipeline_runs(scene: ConsoleScene) -> None:
    table, end_ms = "/srv/tables/events", now_ms()
    counts = {"records": 18_230_511, "files": 96}
    for job, outcome, summary in (
        ("load", RunOutcome.DONE, counts),
        ("audit", RunOutcome.DONE, {"checked": 18_230_511, "missing": 3}),
        ("compact", RunOutcome.FAILED, {"error": "the folder is not there"}),
    ):
        topics = {"events": {"records": 18_230_511, "end": 90_122_870}} if job == "load" else {}
        scene.store.add_pipeline_run(
            PipelineRun(job, table, outcome, end_ms - 9 * MINUTE_MS, end_ms, summary, topics)
        )


@pytest.fixture(scope="module")
def visitor(chromium: Chromium, scene: ConsoleScene) -> Iterator[Visitor]:
    with chromium.visitor(scene.origin) as visitor:
        visitor.tolerate("status of 404")
        sign_in(visitor, scene.key())
        yield visitor


@pytest.mark.parametrize(
    "name",
    [name if name in MAIN_PAGES else pytest.param(name, marks=pytest.mark.long) for name in PAGES],
)
def test_a_page_is_accessible(visitor: Visitor, shop: Shop, name: str) -> None:
    visitor.go(PAGES[name].format(**shop._asdict()))
    expect(visitor.page.get_by_role("heading", level=1)).to_have_count(1)
    if name in SCREENSHOT_HEIGHTS and IS_REGENERATING:
        _save_screenshots(visitor.page, name)
    visitor.page.evaluate(UNFOLD)
    assert_usable(visitor.page)


def _save_screenshots(page: Page, name: str) -> None:
    """Write screenshots of the page in both colour schemes into the documentation."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    if name == "messages":
        page.locator("details.message summary").first.click()
    page.set_viewport_size({"width": SCREENSHOT_WIDTH, "height": SCREENSHOT_HEIGHTS[name]})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=SCREENSHOTS / f"{name}-{scheme}.png")
    page.emulate_media(color_scheme="light")
