"""Every page with something on it: usable by everybody, and as the documentation shows it.

`PAINT_CONSOLE=1 pytest tests/integration/console/test_pages.py` paints the pictures of
docs/console.md anew.
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
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium, Visitor
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, sign_in
from tests.support.service.live_service import event, now_ms

pytestmark = pytest.mark.xdist_group("console")

IS_PAINTING: Final = bool(os.environ.get("PAINT_CONSOLE"))
PICTURES: Final = Path(__file__).parents[3] / "docs" / "images" / "console"
PAINTED: Final = {"jobs": 780, "job": 1_140, "webhook": 1_000, "messages": 720}
"""How high the pictures are, in pixels."""

PICTURE_WIDTH: Final = 1_280

UNFOLD: Final = """() => [...document.querySelectorAll('main details')].slice(0, 3)
    .forEach(each => { each.open = true; })"""
"""Some of what is folded away; a page of messages has fifty times the same."""

ACCOUNT: Final = "shop"
MINUTE_MS: Final = 60_000
SAMPLES: Final = 20 if IS_PAINTING else 2
RUNNING_EVENTS: Final = 900 if IS_PAINTING else 150

PAGES: Final = {
    "jobs": "/console/jobs?accountId={account}",
    "no-jobs": "/console/jobs?state=FAILED&accountId={account}",
    "job": "/console/jobs/{running}",
    "job-with-failures": "/console/jobs/{failing}",
    "cancel": "/console/jobs/{waiting}/cancel",
    "clone": "/console/replays/new?cloneOf={failing}",
    "webhooks": "/console/webhooks?accountId={account}",
    "webhook": "/console/webhooks/{webhook}",
    "log": "/console/log",
    "topic": "/console/log/topics/delivery_log",
    "messages": "/console/log/topics/delivery_log/messages",
    "groups": "/console/log/groups",
    "group": "/console/log/group?id=rewind-delivery",
    "at-work": "/console/log/processes",
    "pipeline": "/console/log/pipeline",
    "nothing": "/console/jobs/rpl_that_never_was",
}


class Shop(NamedTuple):
    """A tenant whose webhooks have a history; the names are those that `PAGES` takes."""

    account: str
    webhook: str
    running: str
    failing: str
    waiting: str


@pytest.fixture(scope="module")
def shop(scene: ConsoleScene) -> Iterator[Shop]:
    scene.key(ACCOUNT, Scope.DEVELOPER)
    with ReceiverThread() as orders, ReceiverThread() as parcels:
        yield _opened(scene, orders, parcels)
        orders.answer(204)


def _opened(scene: ConsoleScene, orders: ReceiverThread, parcels: ReceiverThread) -> Shop:
    taking = scene.webhook_at(ACCOUNT, orders.url, "orders of the shop")
    refusing = scene.webhook_at(ACCOUNT, parcels.url, "parcels, by the carrier")
    idle = scene.webhook_at(ACCOUNT, parcels.url, "newsletter")
    scene.put_rule(refusing, "parcel.*", where={"data.carrier": "snail"})
    scene.missed(refusing, *_made("parcel.sent", 30), ago_s=1)
    until(lambda: len(parcels.taken) >= 30, "the first parcels are delivered live")
    parcels.answer(503)
    failing = _replayed(scene, refusing, scene.missed(refusing, *_made("parcel.lost", 12)))
    _replayed(scene, taking, scene.missed(taking, *_made("order.paid", 40)))
    waiting = scene.replay(idle, _last_hour(), origin="west")
    scene.store.pause_replay(waiting.id)
    orders.answer(204, delay_s=0.2)
    scene.missed(taking, *_made("order.sent", RUNNING_EVENTS), ago_s=1_200)
    running = scene.replay(taking, _last_hour(), max_in_flight=3, event_types=("order.sent",))
    until(lambda: len(scene.store.samples(running.id)) >= SAMPLES, "the plot has points")
    until(lambda: scene.store.missed_hours(refusing.id, 0), "what was missed is counted")
    _tell_runs(scene)
    return Shop(taking.account_id, refusing.id, running.id, failing.id, waiting.id)


def _made(event_type: str, count: int) -> list[dict[str, Any]]:
    return [event(number, event_type, cents=number * 777 % 9_001) for number in range(count)]


def _replayed(scene: ConsoleScene, webhook: Webhook, window: Window) -> Replay:
    replay = scene.replay(webhook, window)
    until(lambda: scene.store.replay(replay.id).state in TERMINAL, "it is over")
    return replay


def _last_hour() -> Window:
    return Window(now_ms() - 60 * MINUTE_MS, now_ms())


def _tell_runs(scene: ConsoleScene) -> None:
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


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_usable_by_everybody(visitor: Visitor, shop: Shop, name: str) -> None:
    visitor.go(PAGES[name].format(**shop._asdict()))
    expect(visitor.page.get_by_role("heading", level=1)).to_have_count(1)
    if name in PAINTED and IS_PAINTING:
        _paint(visitor.page, name)
    visitor.page.evaluate(UNFOLD)
    assert_usable(visitor.page)


def _paint(page: Page, name: str) -> None:
    """Write the page as it is into the documentation, light and dark."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    if name == "messages":
        page.locator("details.message summary").first.click()
    page.set_viewport_size({"width": PICTURE_WIDTH, "height": PAINTED[name]})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.screenshot(path=PICTURES / f"{name}-{scheme}.png")
    page.emulate_media(color_scheme="light")
