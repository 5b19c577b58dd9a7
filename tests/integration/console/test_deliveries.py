"""The deliveries of a webhook, in the browser of its owner."""

import json
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from app.domain.accounts import Scope
from app.domain.deliveries import DeliveryPlace, format_delivery_id
from app.domain.endpoint_options import EndpointOptions
from app.domain.model import Webhook
from app.log.topics import DELIVERY_LOG, DELIVERY_OUTCOMES
from tests.support.http.axe import assert_usable
from tests.support.http.browser import Chromium, Visitor
from tests.support.http.receiver_thread import ReceiverThread
from tests.support.processes.waiting import until
from tests.support.service.console_service import ConsoleScene, sign_in
from tests.support.service.live_service import event, events

pytestmark = pytest.mark.xdist_group("console")

HOSTILE = "<script>alert(1)</script></pre><img src=x onerror=alert(2)>"

ODD = event(1, "order.paid", text=f"\u2028 ü 🎉 \\u0000 {HOSTILE}", size="x" * 200_000)
"""A payload with odd characters, larger than the page shows."""


@pytest.fixture(scope="module")
def orders(scene: ConsoleScene) -> Iterator[Webhook]:
    """Yield a webhook that accepted `ODD` and then rejected two events."""
    scene.key("delivered", Scope.DEVELOPER)
    with ReceiverThread() as receiver:
        webhook = scene.webhook_at("delivered", receiver.url, "orders of the shop")
        scene.owe(webhook, ODD)
        until(lambda: settled(scene, webhook) == 1, "the first delivery is settled")
        receiver.answer(422, body=f"rejected {HOSTILE}".encode())
        scene.owe(webhook, event(2, "order.paid"), event(3, "order.sent"))
        until(lambda: settled(scene, webhook) == 3, "the failures are settled")
        yield webhook


EVENTS: Final = 300


def settled(scene: ConsoleScene, webhook: Webhook) -> int:
    return sum(record.key == webhook.id for record in scene.read(DELIVERY_OUTCOMES))


def list_of(webhook: Webhook) -> str:
    return f"/console/webhooks/{webhook.id}/deliveries"


@pytest.fixture
def owner(chromium: Chromium, scene: ConsoleScene, orders: Webhook) -> Iterator[Visitor]:
    with chromium.visitor(scene.origin) as visitor:
        sign_in(visitor, scene.key("delivered", Scope.DEVELOPER), f"/console/webhooks/{orders.id}")
        yield visitor


def test_an_owner_finds_a_failed_delivery_and_reads_what_the_receiver_answered(
    owner: Visitor,
) -> None:
    page = owner.page
    page.get_by_role("link", name="Deliveries", exact=True).last.click()
    rows = page.get_by_role("region", name="Deliveries").locator("tbody tr")
    expect(rows).to_have_count(3)
    page.get_by_role("link", name="Failed").click()
    expect(rows).to_have_count(2)
    page.get_by_label("Event id").fill("evt_3")
    page.get_by_role("button", name="Filter").click()
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("order.sent")
    expect(rows).to_contain_text("HTTP 422")
    assert_usable(page)
    rows.get_by_role("link", name="evt_3").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Delivery of evt_3 failed")
    attempts = page.get_by_role("region", name="Attempts in order")
    expect(attempts.locator("pre").last).to_have_text(f"rejected {HOSTILE}")
    # The process that sent it is for operators.
    expect(attempts.get_by_role("columnheader", name="Process")).to_have_count(0)
    expect(page.get_by_text("Diagnostics")).to_have_count(0)
    assert page.locator("main img, main script").count() == 0
    assert_usable(page)
    page.get_by_role("link", name="Back to the list").click()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Event id")).to_have_value("evt_3")


def test_an_operator_finds_a_failed_delivery_by_event_id_resends_it_and_sees_it_succeed(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread, other: ReceiverThread
) -> None:
    names = ("finds-first", "finds-second")
    for name in names:
        scene.key(name, Scope.DEVELOPER)
    webhooks = [scene.webhook_at(names[0], receiver.url, "first")]
    webhooks.append(scene.webhook_at(names[1], other.url, "second"))
    for each in (receiver, other):
        each.expect(None)
    other.answer(422, body=HOSTILE.encode())
    sought = event(7, "order.paid", text=HOSTILE) | {"id": "order/7"}
    for webhook in webhooks:
        scene.owe(webhook, sought)
    until(lambda: all(settled(scene, each) == 1 for each in webhooks), "both are settled")
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        heading = page.get_by_role("heading", level=1)
        sign_in(visitor, scene.key(), "/console/deliveries")
        page.get_by_label("Event, delivery or webhook id").fill("order/7")
        page.get_by_role("button", name="Find").click()
        expect(heading).to_have_text("Event order/7")
        rows = page.get_by_role("region", name="Deliveries").locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.filter(has_text="second")).to_contain_text("HTTP 422")
        expect(page.get_by_role("region", name="Text of the payload")).to_contain_text(HOSTILE)
        assert page.locator("main img, main script").count() == 0
        assert_usable(page)
        with page.expect_download() as download:
            page.get_by_role("link", name="Download").click()
        assert json.loads(download.value.path().read_bytes()) == sought
        rows.get_by_role("link", name="second").click()
        expect(heading).to_have_text("Delivery of order/7 failed")
        attempts = page.get_by_role("region", name="Attempts in order")
        expect(attempts.locator("pre")).to_have_text(HOSTILE)
        other.answer(204)
        page.get_by_role("button", name="Resend").click()
        # Without a reload.
        expect(heading).to_have_text("Delivery of order/7 succeeded")
        expect(attempts.get_by_role("row")).to_have_count(3)
        expect(attempts).to_contain_text("resend")
        assert other.taken == ["order/7"]
        page.get_by_role("link", name="order/7", exact=True).click()
        expect(heading).to_have_text("Event order/7")
        expect(rows.filter(has_text="second")).to_contain_text("succeeded")
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(names[0], Scope.DEVELOPER), "/console/events/order/7")
        expect(page.get_by_role("region", name="Deliveries").locator("tbody tr")).to_have_count(1)
        expect(page.get_by_text("second")).to_have_count(0)
        visitor.tolerate("status of 404")
        assert visitor.go("/console/events/evt_404").status == 404


def test_an_operator_resends_selected_deliveries_of_the_list(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    scene.key("resends", Scope.DEVELOPER)
    webhook = scene.webhook_of("resends", receiver)
    receiver.answer(500)
    scene.owe(webhook, *events(0, 3))
    until(lambda: settled(scene, webhook) == 3, "the failures are settled")
    receiver.answer(204)
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(), f"{list_of(webhook)}?status=failed")
        rows = page.get_by_role("region", name="Deliveries").locator("tbody tr")
        expect(rows).to_have_count(3)
        for name in ("evt_0", "evt_2"):
            page.get_by_label(f"Select {name}").check()
        assert_usable(page)
        page.get_by_role("button", name="Resend selected").click()
        expect(page.get_by_text("2 resends queued.")).to_be_visible()
        until(lambda: sorted(receiver.taken) == ["evt_0", "evt_2"], "both are resent")

        def are_recorded() -> bool:
            visitor.go(f"{list_of(webhook)}?status=succeeded")
            return rows.count() == 2

        until(are_recorded, "both have succeeded")
        scene.store.disable_webhook(webhook.id, "not needed any more")
        page.reload()
        expect(rows).to_have_count(2)
        expect(page.get_by_role("button", name="Resend selected")).to_have_count(0)


def test_an_owner_finds_the_failures_of_all_webhooks_and_resends_some(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread, other: ReceiverThread
) -> None:
    key = scene.key("fails", Scope.DEVELOPER)
    for each, name in ((receiver, "billing"), (other, "shipping")):
        each.expect(None)
        each.answer(422)
        webhook = scene.webhook_at("fails", each.url, name)
        scene.owe(webhook, event(1), event(2))
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, key, "/console/deliveries")
        page.get_by_role("link", name="Failures", exact=True).click()
        rows = page.get_by_role("region", name="Deliveries").locator("tbody tr")

        def are_counted() -> bool:
            page.reload()
            return rows.count() == 4

        until(are_counted, "all failures are counted")
        assert_usable(page)
        names = rows.locator("td .code").all_text_contents()
        rows.get_by_role("link").first.click()
        heading = page.get_by_role("heading", level=1)
        expect(heading).to_have_text(f"Delivery of {names[0]} failed")
        previous, following = (
            page.get_by_role("link", name=f"{name} delivery") for name in ("Previous", "Next")
        )
        expect(previous).to_have_count(0)
        following.click()
        expect(heading).to_have_text(f"Delivery of {names[1]} failed")
        assert_usable(page)
        page.keyboard.press("j")
        expect(heading).to_have_text(f"Delivery of {names[2]} failed")
        page.keyboard.press("j")
        expect(heading).to_have_text(f"Delivery of {names[3]} failed")
        expect(following).to_have_count(0)
        previous.click()
        expect(heading).to_have_text(f"Delivery of {names[2]} failed")
        page.get_by_role("link", name="Back to the list").click()
        expect(rows).to_have_count(4)
        for each in (receiver, other):
            each.answer(204)
        page.get_by_label("Select evt_1 to billing").check()
        page.get_by_label("Select evt_2 to shipping").check()
        page.get_by_role("button", name="Resend selected").click()
        expect(page.get_by_text("2 resends queued.")).to_be_visible()
        until(lambda: (receiver.taken, other.taken) == (["evt_1"], ["evt_2"]), "both are resent")
        assert len(page.content()) < 100_000
        rows.get_by_role("link").last.click()
        page.get_by_role("button", name="Resend").click()
        expect(page.get_by_text("Resend queued.")).to_be_visible()
        expect(previous).to_be_visible()
        page.get_by_role("link", name="Back to the list").click()
        tab = page.get_by_role("link", name="Failures", exact=True)
        expect(tab).to_have_attribute("aria-current", "page")


def test_a_payload_is_shown_in_part_and_downloaded_byte_for_byte(
    owner: Visitor, orders: Webhook
) -> None:
    page, body = owner.page, json.dumps(ODD)
    owner.go(f"{list_of(orders)}?status=succeeded")
    page.get_by_role("link", name="evt_1").click()
    shown = page.get_by_role("region", name="Text of the payload").text_content()
    assert shown
    assert body.startswith(shown)
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.path().read_bytes() == body.encode()
    assert len(page.content()) < 100_000


@pytest.mark.long
def test_an_operator_reads_any_delivery_with_its_place_in_the_log(
    chromium: Chromium, scene: ConsoleScene, orders: Webhook
) -> None:
    with chromium.visitor(scene.origin, javascript=False) as visitor:
        page = visitor.page
        sign_in(visitor, scene.key(), f"{list_of(orders)}?eventType=order.s*")
        page.get_by_role("link", name="evt_3").click()
        expect(page.get_by_role("region", name="Attempts in order")).to_contain_text("test")
        page.get_by_role("region", name="Diagnostics").get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_have_text(f"Messages of {DELIVERY_LOG}")
        expect(page.locator("details.message").first).to_contain_text("evt_3")


@pytest.mark.long
def test_a_pending_delivery_is_updated_until_it_is_settled(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("waits", Scope.DEVELOPER)
    # The last event would be sent after minutes. The limit is there before the deliverers see the
    # webhook, which would send all events at once without it.
    slow = EndpointOptions(max_events_per_second=1)
    webhook = scene.webhook_of("waits", receiver, slow)
    scene.owe(webhook, *events(0, EVENTS))
    last = f"evt_{EVENTS - 1}"
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        sign_in(visitor, key, "/console/deliveries")
        page.get_by_role("link", name="test", exact=True).click()
        row = page.get_by_role("row", name=last)
        expect(row).to_contain_text("pending")
        with page.context.new_page() as opened:
            opened.goto(page.url)
            opened.get_by_role("link", name=last).click()
            status = opened.get_by_role("heading", level=1)
            expect(status).to_contain_text("pending")
            scene.store.disable_webhook(webhook.id, "not needed any more")
            # Neither page is reloaded.
            expect(status).to_contain_text("skipped")
            expect(row).to_contain_text("skipped")


@pytest.mark.long
def test_a_list_announces_deliveries_that_were_settled_since(
    chromium: Chromium, scene: ConsoleScene, receiver: ReceiverThread
) -> None:
    key = scene.key("announced", Scope.DEVELOPER)
    webhook = scene.webhook_of("announced", receiver)
    with chromium.visitor(scene.origin) as visitor:
        page = visitor.page
        # A list with deliveries of the last seconds may announce fewer: see `UNCOUNTED_MS`.
        sign_in(visitor, key, list_of(webhook))
        rows = page.get_by_role("region", name="Deliveries").locator("tbody tr")
        expect(rows).to_have_count(0)
        scene.owe(webhook, event(1), event(2))
        # Without a reload.
        link = page.get_by_role("link", name="2 new deliveries")
        expect(link).to_be_visible()
        assert_usable(page)
        link.click()
        expect(rows).to_have_count(2)
        expect(link).to_have_count(0)


def test_other_accounts_find_neither_the_list_nor_a_delivery(
    chromium: Chromium, scene: ConsoleScene, orders: Webhook
) -> None:
    (first, *_) = [each for each in scene.read(DELIVERY_LOG) if each.key == orders.id]
    delivery = format_delivery_id(DeliveryPlace("here", first.partition, first.offset))
    with chromium.visitor(scene.origin) as visitor:
        visitor.tolerate("status of 404")
        sign_in(visitor, scene.key("stranger", Scope.DEVELOPER))
        for path in (list_of(orders), f"/console/deliveries/{delivery}"):
            assert visitor.go(path).status == 404
            expect(visitor.page.get_by_text("evt_1")).to_have_count(0)
