"""The page of a job: live updates and actions."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from app.domain.accounts import Scope
from app.domain.model import Replay, ReplayFilter
from app.domain.states import TERMINAL, ReplayState
from tests.support.http.browser import Chromium, Visitor
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.tcp_proxy import TcpLink
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, delivered_by_replays, sign_in
from tests.support.service.live_service import events, ids

pytestmark = pytest.mark.xdist_group("console")

MANY = 400
"""Events that keep a slow receiver busy for longer than any test."""


class OpenJobPage(NamedTuple):
    """A slow job, with its owner's browser on its page."""

    replay: Replay
    visitor: Visitor

    @property
    def page(self) -> Page:
        return self.visitor.page

    @property
    def state(self) -> Locator:
        return state_of(self.page)


def state_of(page: Page) -> Locator:
    return page.get_by_role("heading", level=1).locator("[data-live=state]")


def delivered(page: Page) -> int:
    """Return the displayed number of delivered events."""
    text = page.locator("dt", has_text="Delivered").locator("xpath=following-sibling::dd")
    return int(re.sub(r"\D", "", text.inner_text()))


def slow_job(scene: ConsoleScene, receiver: ReceiverThread, account: str) -> Replay:
    """Start a job with a slow receiver."""
    webhook = scene.webhook_of(account, receiver)
    window = scene.missed(webhook, *events(0, MANY))
    receiver.answer(204, delay_s=0.5)
    return scene.replay(webhook, window, max_in_flight=2)


@contextmanager
def open_job_page(
    chromium: Chromium,
    scene: ConsoleScene,
    receiver: ReceiverThread,
    account: str,
    *,
    javascript: bool = True,
) -> Iterator[OpenJobPage]:
    key = scene.key(account, Scope.DEVELOPER)
    replay = slow_job(scene, receiver, account)
    until(lambda: scene.store.replay(replay.id).counts.delivered > 0, "it has begun")
    with chromium.visitor(scene.origin, javascript=javascript) as visitor:
        sign_in(visitor, key, f"/console/jobs/{replay.id}")
        yield OpenJobPage(replay, visitor)


def test_an_open_page_follows_its_job_to_the_end(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    with open_job_page(chromium, scene, receiver, "follows") as opened:
        page = opened.page
        expect(opened.state).to_have_text("ONGOING")
        before = delivered(page)
        until(lambda: delivered(page) > before, "the page is updated")
        receiver.answer(204)
        expect(opened.state).to_have_text("COMPLETED")
        assert delivered(page) == MANY
        expect(page.locator("[data-live=timeline]")).to_contain_text("COMPLETED")
        # The page was loaded once, before and after its visitor signed in; the rest was streamed.
        address = f"{scene.origin}/console/jobs/{opened.replay.id}"
        assert opened.visitor.requests.count(address) == 2


@pytest.mark.long
@pytest.mark.parametrize("javascript", [True, False])
def test_a_job_is_paused_resumed_and_cancelled(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread, javascript: bool
) -> None:
    account = f"acts-{javascript}"
    with open_job_page(chromium, scene, receiver, account, javascript=javascript) as opened:
        page = opened.page
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_text("Job paused.")).to_be_visible()
        expect(opened.state).to_have_text("PAUSED")
        assert scene.store.replay(opened.replay.id).state is ReplayState.PAUSED
        page.get_by_role("button", name="Resume").click()
        expect(page.get_by_text("Job resumed.")).to_be_visible()
        page.get_by_role("link", name="Cancel").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("Cancel")
        page.get_by_role("button", name="Cancel job").click()
        expect(page.get_by_text("Job cancelled.")).to_be_visible()
        expect(opened.state).to_have_text("CANCELLED")
        assert scene.store.replay(opened.replay.id).state is ReplayState.CANCELLED
        expect(page.get_by_role("button", name="Pause")).to_have_count(0)


@pytest.mark.long
@pytest.mark.parametrize("javascript", [True, False])
def test_failures_are_listed_and_retried(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread, javascript: bool
) -> None:
    account = f"retries-{javascript}"
    key = scene.key(account, Scope.DEVELOPER)
    webhook = scene.webhook_of(account, receiver)
    window = scene.missed(webhook, *events(0, 3))
    receiver.answer(422)
    failed = scene.replay(webhook, window)
    until(lambda: scene.store.replay(failed.id).state in TERMINAL, "it is over")
    receiver.answer(204)
    with chromium.visitor(scene.origin, javascript=javascript) as visitor:
        page = visitor.page
        sign_in(visitor, key, f"/console/jobs/{failed.id}")
        table = page.get_by_role("region", name="Failures").get_by_role("table")
        expect(table.get_by_role("row")).to_have_count(4)
        expect(table).to_contain_text("422")
        page.get_by_role("button", name="Retry 3 failed events").click()
        expect(page.get_by_text("Retry queued: it sends what was not delivered.")).to_be_visible()
        if not javascript:
            until(lambda: delivered_by_replays(receiver) == ids(0, 3), "they come")
            retry = scene.store.replays(ReplayFilter(webhook_id=webhook.id)).items[0]
            until(lambda: scene.store.replay(retry.id).state in TERMINAL, "the retry is over")
            page.reload()
        expect(state_of(page)).to_have_text("COMPLETED")
        assert delivered(page) == 3
        expect(page.get_by_role("link", name=failed.id)).to_be_visible()


@pytest.mark.long
def test_a_lost_stream_is_shown_and_reconnected(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("lost", Scope.DEVELOPER)
    replay = slow_job(scene, receiver, "lost")
    with TcpLink(scene.port) as link, chromium.visitor(f"http://{link.address}") as visitor:
        visitor.tolerate("net::ERR_")
        page = visitor.page
        sign_in(visitor, key, f"/console/jobs/{replay.id}")
        expect(state_of(page)).to_have_text("ONGOING")
        stale = page.get_by_text("Connection lost")
        expect(stale).to_be_hidden()
        link.cut()
        expect(stale).to_be_visible()
        scene.store.pause_replay(replay.id)
        link.mend()
        expect(stale).to_be_hidden()
        expect(state_of(page)).to_have_text("PAUSED")
    scene.store.cancel_replay(replay.id)


@pytest.mark.long
def test_a_silent_network_is_shown_and_the_stream_reconnected(
    chromium: Chromium, scene: ConsoleScene
) -> None:
    with TcpLink(scene.port) as link, chromium.visitor(f"http://{link.address}") as visitor:
        visitor.tolerate("net::ERR_")
        page = visitor.page
        page.clock.install()
        with page.expect_response("**/console/live?*"):
            sign_in(visitor, scene.key())
        stale = page.get_by_text("Connection lost")
        link.stall()
        page.clock.fast_forward(60_000)
        expect(stale).to_be_visible()
        link.mend()
        expect(stale).to_be_hidden()


@pytest.mark.long
def test_a_session_survives_a_restart_of_the_service(
    chromium: Chromium, scene: ConsoleScene
) -> None:
    with chromium.visitor(scene.origin) as visitor:
        # A service that stops refuses new streams, with 503.
        visitor.tolerate("net::ERR_", "status of 503 .*/console/live")
        sign_in(visitor, scene.key())
        scene.api.stop()
        expect(visitor.page.get_by_text("Connection lost")).to_be_visible()
        scene.start_api()
        expect(visitor.page.get_by_text("Connection lost")).to_be_hidden()
        visitor.go("/console/jobs")
        expect(visitor.page.get_by_role("heading", level=1)).to_have_text("Jobs")
