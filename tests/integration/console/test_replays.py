"""Replays started in the console, from missed events to the last delivery."""

import pytest
from playwright.sync_api import expect

from app.domain.accounts import Scope
from app.domain.model import ReplayFilter, Webhook
from app.domain.states import TERMINAL
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, delivered_by_replays, sign_in
from tests.support.service.live_service import events, ids

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]

EVENTS = 25


def webhook_that_missed(scene: ConsoleScene, receiver: ReceiverThread, account: str) -> Webhook:
    """Return a webhook whose receiver failed all live deliveries and is up again."""
    webhook = scene.webhook_of(account, receiver)
    receiver.answer(503)
    scene.missed(webhook, *events(0, EVENTS), ago_s=1)
    until(lambda: len(receiver.webhooks) >= EVENTS, "all were tried live")
    receiver.answer(204)

    def missed() -> int:
        return sum(hour.missed for hour in scene.store.missed_hours(webhook.id, 0))

    until(lambda: missed() == EVENTS, "what was missed is counted")
    return webhook


def test_missed_events_are_replayed_from_the_webhooks_page(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("starts", Scope.DEVELOPER)
    webhook = webhook_that_missed(scene, receiver, "starts")
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, key, f"/console/webhooks/{webhook.id}")
        replay_link = page.get_by_role("link", name=f"Replay {EVENTS} events")
        replay_link.click()
        expect(page.get_by_role("heading", level=1)).to_have_text("New replay")
        assert_usable(page)
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Start this replay?")
        estimate = page.locator("[aria-label='Dry run']")
        expect(estimate).to_contain_text(str(EVENTS))
        assert_usable(page)
        page.get_by_role("button", name="Start replay").click()
        expect(page.get_by_text("Replay queued.")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_contain_text("COMPLETED")
        assert delivered_by_replays(receiver) == sorted(ids(0, EVENTS))
        visitor.go(f"/console/webhooks/{webhook.id}")
        expect(page.get_by_text("all have been replayed since")).to_be_visible()
        expect(replay_link).to_have_count(0)


def test_a_replay_is_started_without_javascript(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("starts-plainly", Scope.DEVELOPER)
    webhook = webhook_that_missed(scene, receiver, "starts-plainly")
    with chromium.visitor(scene.origin, javascript=False) as visitor:
        page = visitor.page
        sign_in(visitor, key)
        page.get_by_role("link", name="New replay").click()
        page.get_by_label("Webhook").select_option(webhook.id)
        page.get_by_label("Or last").select_option("15 minutes")
        page.get_by_role("button", name="Preview").click()
        page.get_by_role("button", name="Start replay").click()
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_contain_text("Job")
        until(lambda: delivered_by_replays(receiver) == sorted(ids(0, EVENTS)), "the events come")
        (job,) = scene.store.replays(ReplayFilter(webhook_id=webhook.id)).items
        until(lambda: scene.store.replay(job.id).state in TERMINAL, "the job ends")
        page.reload()
        expect(heading).to_contain_text("COMPLETED")


def test_an_invalid_window_is_shown_at_its_field(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("mistypes", Scope.DEVELOPER)
    webhook = scene.webhook_of("mistypes", receiver)
    with chromium.visitor(scene.origin) as visitor:
        visitor.tolerate("status of 4[02]2", "status of 400")
        page = visitor.page
        sign_in(visitor, key, "/console/replays/new")
        page.get_by_label("Webhook").select_option(webhook.id)
        page.get_by_label("From (UTC)").fill("2026-01-02T03:04:05")
        page.get_by_label("To, exclusive (UTC)").fill("2026-01-02T03:04:04")
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_role("alert").first).to_be_visible()
        expect(page.get_by_label("From (UTC)")).to_have_value("2026-01-02T03:04:05")
        assert_usable(page)
