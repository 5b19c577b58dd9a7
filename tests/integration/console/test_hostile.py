"""External content is displayed as text: no page executes it, loads anything for it, or breaks.

A visitor reports script errors, dialogs, requests to other origins, missing resources, and
violations of the Content-Security-Policy.
"""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from app.domain.accounts import Scope
from app.domain.model import Window
from app.domain.states import TERMINAL
from app.log.topics import DELIVERY_LOG
from tests.support.http.browser import LOOPBACK, Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, sign_in

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]

SIGN = "<script>alert('ran')</script>"
"""A part of the hostile text, as displayed."""

HOSTILE = (
    f"{SIGN}\"'></textarea></select></pre></script><script>alert(0)</script>"
    "<img src=//192.0.2.1/x onerror=alert(1)><svg onload=alert(2)>"
)
"""Closes any surrounding markup, and starts a script that must not run."""


@pytest.fixture
def hostile_receiver_url() -> Iterator[str]:
    """Yield the URL of a receiver that responds to every event with an error in markup."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            content = f"<html><body>{HOSTILE}".encode()
            self.send_response(422, "<b>No</b>")
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{LOOPBACK}:{server.server_port}/<i>%22"
        server.shutdown()
        thread.join()


def hostile_event(number: int) -> dict[str, Any]:
    return {
        "id": f"evt_{number}{HOSTILE}",
        "type": f"made.{HOSTILE}",
        "data": {HOSTILE: [HOSTILE, "javascript:alert(3)"]},
    }


def assert_no_injected_elements(page: Page) -> None:
    """Assert that the hostile text created no elements. Plots (`svg`) are of the page itself."""
    assert page.locator("main img, main iframe, main script, [onerror], [onload]").count() == 0


def assert_shown_as_text(page: Page, *places: str) -> None:
    """Assert that the hostile text is visible and created no elements."""
    assert_no_injected_elements(page)
    for place in places:
        expect(page.locator(place, has_text=SIGN)).not_to_have_count(0)


def test_text_of_events_receivers_and_owners_is_escaped(
    chromium: Chromium, scene: ConsoleScene, hostile_receiver_url: str
) -> None:
    key = scene.key("hostile", Scope.DEVELOPER)
    webhook = scene.webhook_at("hostile", hostile_receiver_url, description=HOSTILE)
    replay = scene.replay(webhook, scene.missed(webhook, hostile_event(1), hostile_event(2)))
    until(lambda: scene.store.replay(replay.id).state in TERMINAL, "it is over")
    assert scene.store.replay(replay.id).counts.failed == 2
    scene.store.disable_webhook(webhook.id, HOSTILE)
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, key, f"/console/jobs/{replay.id}")
        for summary in page.locator("summary").all():
            summary.click()
        assert_shown_as_text(page, "dl.facts", "table tbody th", "td pre")
        for path in ("webhooks", f"webhooks/{webhook.id}", "jobs"):
            visitor.go(f"/console/{path}")
            assert_shown_as_text(page, "main")
        visitor.go(f"/console/webhooks/{webhook.id}/edit")
        expect(page.get_by_label("Description")).to_have_value(HOSTILE)
        visitor.go("/console/replays/new")
        assert_shown_as_text(page, "select")


def test_a_live_update_is_escaped(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("hostile-live", Scope.DEVELOPER)
    webhook = scene.webhook_of("hostile-live", receiver)
    replay = scene.replay(webhook, Window(0, 1), origin="west")
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, key, f"/console/jobs/{replay.id}")
        # An actor's name that another program could have written to the database.
        scene.store.pause_replay(replay.id, actor=HOSTILE[:40])
        timeline = visitor.page.locator("[data-live=timeline]")
        expect(timeline).to_contain_text(HOSTILE[:40])
        assert visitor.page.locator("main script").count() == 0


def test_messages_of_the_log_are_escaped(chromium: Chromium, scene: ConsoleScene) -> None:
    body = json.dumps(hostile_event(1)).encode()
    header = {"event-id": HOSTILE, HOSTILE: HOSTILE}
    scene.produce(DELIVERY_LOG, [(HOSTILE, header, body), (HOSTILE, {}, HOSTILE.encode())])
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(), f"/console/log/topics/{DELIVERY_LOG}/messages")
        for message in page.locator("details.message", has_text=SIGN).all():
            message.locator("summary").first.click()
        assert_shown_as_text(page, "details.message[open] dl.facts", "details.message[open] pre")


@pytest.fixture(scope="module")
def operator_page(chromium: Chromium, scene: ConsoleScene) -> Iterator[Page]:
    with chromium.visitor(scene.origin) as visitor:
        visitor.tolerate("status of 4")
        sign_in(visitor, scene.key())
        yield visitor.page


@pytest.mark.parametrize(
    "path",
    [
        "/console/sign-in?next={}",
        "/console/jobs?webhookId={}",
        "/console/jobs?state={}",
        "/console/jobs?did={}",
        "/console/jobs/{}",
        "/console/webhooks/{}",
        "/console/notice-endpoints/{}",
        "/console/notice-endpoints?accountId={}",
        "/console/deliveries/{}",
        "/console/replays/new?webhookId={}&from={}",
        "/console/log?containing={}",
        "/console/log/topics/{}",
        "/console/log/group?id={}",
        "/console/log/topics/delivery_log/messages?from=time&time={}",
        "/console/log/topics/delivery_log/messages?cursor={}",
        "/console/{}",
    ],
)
def test_a_forged_url_injects_nothing(operator_page: Page, path: str) -> None:
    operator_page.goto(path.replace("{}", quote(HOSTILE)))
    assert_no_injected_elements(operator_page)
    expect(operator_page.get_by_role("main")).to_be_visible()
