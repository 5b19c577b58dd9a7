"""Access control, CSRF protection, and keyboard access."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from playwright.sync_api import Page, expect

from app.domain.accounts import Scope
from app.domain.model import Replay, Window
from app.domain.states import ReplayState
from tests.support.http.browser import LOOPBACK, Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.service.console_service import ConsoleScene, sign_in

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]


def waiting_job(scene: ConsoleScene, receiver: ReceiverThread, account: str) -> Replay:
    """Return a job without a worker for its data centre."""
    webhook = scene.webhook_of(account, receiver)
    return scene.replay(webhook, Window(0, 1), origin="west")


def csrf(page: Page) -> str:
    """Return the CSRF token of the page."""
    return page.locator("input[name=csrf]").first.input_value()


def test_a_developer_can_neither_see_nor_change_jobs_of_others(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    scene.key("alice", Scope.DEVELOPER)
    bobs_key = scene.key("bob", Scope.DEVELOPER)
    theirs = waiting_job(scene, receiver, "alice")
    own = waiting_job(scene, receiver, "bob")
    with chromium.visitor(scene.origin) as bob:
        bob.tolerate("status of 40[34]")
        sign_in(bob, bobs_key)
        expect(bob.page.get_by_role("link", name=own.id)).to_be_visible()
        expect(bob.page.get_by_text(theirs.id)).to_have_count(0)
        expect(bob.page.get_by_role("link", name="Log")).to_have_count(0)
        token = csrf(bob.page)
        assert bob.go(f"/console/jobs/{theirs.id}").status == 404
        assert bob.go(f"/console/jobs?accountId={theirs.account_id}").status == 403
        path = f"{scene.origin}/console/jobs/{theirs.id}/pause"
        assert bob.page.request.post(path, form={"csrf": token}).status == 404
    assert scene.store.replay(theirs.id).state is ReplayState.OPEN


def test_a_read_only_key_gets_no_actions(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    scene.key("carol", Scope.DEVELOPER)
    replay = waiting_job(scene, receiver, "carol")
    with chromium.visitor(scene.origin) as onlooker:
        sign_in(onlooker, scene.key(read_only=True), f"/console/jobs/{replay.id}")
        page = onlooker.page
        expect(page.get_by_role("heading", level=1)).to_contain_text("OPEN")
        buttons = page.get_by_role("button").all_inner_texts()
        assert buttons == ["Sign out", "Use local times", "Keyboard shortcuts"]
        path = f"{scene.origin}/console/jobs/{replay.id}/pause"
        assert page.request.post(path, form={"csrf": csrf(page)}).status == 403
    assert scene.store.replay(replay.id).state is ReplayState.OPEN


@contextmanager
def attacker_site(target: str) -> Iterator[str]:
    """Serve a page of another origin that submits a form to `target` when it is opened."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = (
                f"<!doctype html><title>Trap</title><form method=post action='{target}'></form>"
                "<script>document.forms[0].submit()</script>"
            ).encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer((LOOPBACK, 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://{LOOPBACK}:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_cross_site_form_changes_nothing(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("dave", Scope.DEVELOPER)
    replay = waiting_job(scene, receiver, "dave")
    target = f"{scene.origin}/console/jobs/{replay.id}/pause"
    # On another port of the same host, which browsers send the cookie from.
    with attacker_site(target) as origin, chromium.visitor(scene.origin) as visitor:
        visitor.allow(origin)
        visitor.tolerate("status of 403", "favicon")
        sign_in(visitor, key)
        visitor.page.goto(f"{origin}/")
        visitor.page.wait_for_url(target)
        expect(visitor.page.get_by_role("main")).to_contain_text("another site")
    assert scene.store.replay(replay.id).state is ReplayState.OPEN


def test_sign_in_and_pausing_a_job_with_the_keyboard(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("erin", Scope.DEVELOPER)
    replay = waiting_job(scene, receiver, "erin")
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        visitor.go("/console/jobs")
        visitor.tab_to(page.get_by_label("API key"))
        page.keyboard.type(key)
        page.keyboard.press("Enter")
        page.wait_for_url("/console/jobs")
        visitor.tab_to(page.get_by_role("link", name=replay.id))
        page.keyboard.press("Enter")
        page.wait_for_url(f"/console/jobs/{replay.id}")
        visitor.tab_to(page.get_by_role("button", name="Pause"))
        page.keyboard.press("Enter")
        expect(page.get_by_text("Job paused.")).to_be_visible()
    assert scene.store.replay(replay.id).state is ReplayState.PAUSED
