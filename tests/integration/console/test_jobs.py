"""The list of jobs: live updates and bulk actions."""

import re
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from app.domain.accounts import Scope
from app.domain.model import Replay, Window
from app.domain.states import TERMINAL, ReplayState
from benchmarks.console_client import PageReader
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, delivered_by_replays, sign_in
from tests.support.service.live_service import events, ids

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]


def waiting_jobs(
    scene: ConsoleScene, receiver: ReceiverThread, account: str, count: int
) -> list[Replay]:
    """Return jobs without a worker for their data centre."""
    return [
        scene.replay(scene.webhook_of(account, receiver), Window(0, 1), origin="west")
        for _ in range(count)
    ]


def states(scene: ConsoleScene, jobs: list[Replay]) -> list[ReplayState]:
    return [scene.store.replay(job.id).state for job in jobs]


def tab(page: Page, state: str) -> str:
    """Return the text of a state's tab, which ends with the number."""
    tabs = page.get_by_role("navigation", name="States")
    return tabs.get_by_role("link", name=re.compile(rf"^{state} \d")).inner_text()


@pytest.mark.parametrize("javascript", [True, False])
def test_selected_or_matching_jobs_are_changed_after_a_confirmation(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread, javascript: bool
) -> None:
    account = f"many-{javascript}"
    key = scene.key(account, Scope.DEVELOPER)
    jobs = waiting_jobs(scene, receiver, account, 3)
    with chromium.visitor(scene.origin, javascript=javascript) as visitor:
        page = visitor.page
        sign_in(visitor, key)
        for job in jobs[:2]:
            page.get_by_label(f"Select {job.id}").check()
        page.get_by_role("button", name="Pause…").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Pause 2 jobs?")
        if javascript:
            assert_usable(page)
        page.get_by_role("button", name="Pause 2 jobs").click()
        expect(page.get_by_text("2 jobs paused.")).to_be_visible()
        assert states(scene, jobs) == [ReplayState.PAUSED] * 2 + [ReplayState.OPEN]
        page.get_by_role("link", name="PAUSED").click()
        expect(page).to_have_url(f"{scene.origin}/console/jobs?state=PAUSED")
        page.get_by_label("all 2 matching").check()
        page.get_by_role("button", name="Cancel…").click()
        page.get_by_role("button", name="Cancel 2 jobs").click()
        expect(page.get_by_text("2 jobs cancelled.")).to_be_visible()
        assert states(scene, jobs) == [ReplayState.CANCELLED] * 2 + [ReplayState.OPEN]


def test_one_checkbox_selects_all_jobs_of_a_page(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("ticks", Scope.DEVELOPER)
    jobs = waiting_jobs(scene, receiver, "ticks", 2)
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, key)
        visitor.page.get_by_label("Select all jobs on this page").check()
        for job in jobs:
            expect(visitor.page.get_by_label(f"Select {job.id}")).to_be_checked()


def test_failures_of_several_jobs_are_retried_with_live_updates(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("bulk-retries", Scope.DEVELOPER)
    receiver.answer(422)
    jobs = []
    for number in range(2):
        webhook = scene.webhook_of("bulk-retries", receiver)
        window = scene.missed(webhook, *events(number, number + 1))
        jobs.append(scene.replay(webhook, window))
    until(lambda: {*states(scene, jobs)} <= TERMINAL, "both are over")
    receiver.answer(204)
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, key, "/console/jobs?withFailures=true")
        page.get_by_label("all 2 matching").check()
        page.get_by_role("button", name="Retry failures…").click()
        page.get_by_role("button", name="Retry 2 jobs").click()
        expect(page.get_by_text("2 retries queued.")).to_be_visible()
        long_name = "w" * 100
        for job in jobs:
            scene.store.update_webhook(job.webhook_id, description=long_name)
        visitor.go("/console/jobs")
        expect(page.locator("[data-live=state]", has_text="COMPLETED")).to_have_count(4)
        names = page.get_by_role("rowheader").get_by_role("link", name=long_name, exact=True)
        expect(names).to_have_count(4)
        until(lambda: tab(page, "COMPLETED").endswith("4"), "the tab counts them")
        assert_usable(page)
        assert delivered_by_replays(receiver) == ids(0, 2)


def test_the_health_of_an_open_page_is_updated(chromium: Chromium, scene: ConsoleScene) -> None:
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, scene.key())
        health = visitor.page.get_by_role("list", name="Health")
        expect(health).to_contain_text("log up")
        scene.broker.pause()
        try:
            expect(health).to_contain_text("log unreachable")
        finally:
            scene.broker.resume()
        expect(health).to_contain_text("log up")
        expect(health).to_contain_text("database up")
        assert_usable(visitor.page)


def test_the_benchmark_requests_the_same_stream_as_browsers(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("bench", Scope.DEVELOPER)
    waiting_jobs(scene, receiver, "bench", 2)
    with chromium.visitor(scene.origin) as visitor:
        path = "/console/jobs?state=OPEN"
        with visitor.page.expect_request("**/console/live?*") as asked:
            sign_in(visitor, key, path)
        read = PageReader(visitor.page.request.get(path).text())
        assert parse_qs(urlsplit(asked.value.url).query) == parse_qs(urlsplit(read.stream).query)
        loaded = [url.removeprefix(scene.origin) for url in visitor.requests if "/static/" in url]
        # A headless browser does not load the icon.
        seen = {each for each in read.loads if "/static/icon.svg" not in each}
        assert {*loaded} == seen < {*read.loads}
