"""The log pages, and the link from a message to a replay."""

import json
from datetime import UTC, datetime

import pytest
from playwright.sync_api import expect

from app.domain.accounts import Scope
from app.live import deliverer
from app.log.topics import DELIVERY_LOG
from tests.support.http.browser import Chromium
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.service.console_service import ConsoleScene, sign_in
from tests.support.service.live_service import event

PAGE_BYTES_MAX = 100_000

pytestmark = [pytest.mark.xdist_group("console"), pytest.mark.long]


def test_a_message_is_found_and_replayed_without_javascript(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    scene.key("browsed", Scope.DEVELOPER)
    webhook = scene.webhook_of("browsed", receiver)
    missed = event(1, "order.sent", weight={"grams": 120})
    scene.missed(webhook, missed)
    (record,) = [each for each in scene.read(DELIVERY_LOG) if each.key == webhook.id]
    with chromium.visitor(scene.origin, javascript=False) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(), "/console/log")
        page.get_by_role("link", name=DELIVERY_LOG, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Topic {DELIVERY_LOG}")
        page.get_by_role("link", name="Messages", exact=True).click()
        page.get_by_label("Start at").select_option("offset")
        page.get_by_role("textbox", name="Partition").fill(str(record.partition))
        page.get_by_role("textbox", name="Offset").fill(str(record.offset))
        page.get_by_role("button", name="Show").click()
        message = page.get_by_role("group").filter(has_text=webhook.id).first
        if message.get_attribute("open") is None:
            message.locator("summary").first.click()
        expect(message).to_contain_text("event-type: order.sent")
        value = message.get_by_role("region", name="Value").inner_text()
        assert json.loads(value) == missed
        message.get_by_role("link", name="Replay from").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("New replay")
        expect(page.get_by_label("Webhook")).to_have_value(webhook.id)
        present = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S")
        page.get_by_label("To, exclusive (UTC)").fill(present)
        page.get_by_role("button", name="Preview").click()
        expect(page.locator("[aria-label='Dry run']")).to_contain_text("Events")


def test_groups_and_processes_have_lag_owners_and_heartbeats(
    chromium: Chromium, scene: ConsoleScene
) -> None:
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(), "/console/log/groups")
        page.get_by_role("link", name=deliverer.GROUP).click()
        partitions = page.get_by_role("region", name="Partitions of")
        expect(partitions.get_by_role("row")).to_have_count(1 + scene.partitions)
        expect(partitions).to_contain_text("127.0.0.1")
        page.get_by_role("link", name="Processes").click()
        processes = page.get_by_role("region", name="Processes of the service")
        for kind in ("api", "live", "worker"):
            row = processes.get_by_role("row", name=kind)
            expect(row).to_contain_text("running")
        expect(page.get_by_role("region", name="Brokers")).to_contain_text(scene.bootstrap_servers)


def test_rates_and_lags_over_time(chromium: Chromium, scene: ConsoleScene) -> None:
    scene.add_log_samples()
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(), "/console/log")
        page.get_by_role("img", name="Messages written to all topics").wait_for()
        page.get_by_role("link", name="Groups", exact=True).click()
        page.get_by_role("link", name=deliverer.GROUP).click()
        plot = page.get_by_role("img", name="Lag of the group")
        expect(plot).to_have_count(1)
        expect(page.get_by_role("heading", level=2).first).to_have_text("Last hour")
        ranges = page.get_by_role("navigation", name="Time range")
        ranges.get_by_role("link", name="24 h").click()
        expect(page.get_by_role("heading", level=2).first).to_have_text("Last 24 hours")
        expect(plot).to_have_count(1)
        page.get_by_text("Show as table").click()
        table = page.get_by_role("region", name="Lag of the group as table")
        expect(table.get_by_role("row").nth(1)).to_be_visible()
        assert len(page.content().encode()) < PAGE_BYTES_MAX
