"""The failures of all webhooks, as far as they need no log, and the links back to lists."""

from dataclasses import replace

import pytest
from jinja2 import Environment

from app.console.delivery_parts import version_of
from app.console.rendering import environment
from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.hours import HOUR_MS
from app.domain.model import Webhook, WebhookStatus
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.log.deliveries import DeliverySummary
from app.services.services import now_ms
from app.store import Store
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage

pytestmark = pytest.mark.anyio

PAGE = "/console/deliveries/failures"

FAILED = DeliverySummary(
    DeliveryPlace("here", 3, 7), "wh_1", "evt_7", "order.paid", 1_000, DeliveryStatus.FAILED
)


@pytest.fixture
def templates() -> Environment:
    return environment(60.0)


async def test_the_first_page_links_to_the_failures_of_the_last_hour(
    developers_client: ConsoleClient,
) -> None:
    first = await developers_client.page("/console/deliveries")
    links = {each.text: each for each in first.all(".//nav[@aria-label='Lists']//a")}
    assert links["Webhooks"].get("aria-current") == "page"
    # Without a failure in the database, the log is not read.
    page = await developers_client.page(links["Failures"].get("href", ""))
    assert "No failed deliveries" in page.main
    current = [each.text for each in page.all(".//main//nav//a") if each.get("aria-current")]
    assert current == ["Failures", "Failed", "Last hour"]
    assert page.all(".//input[@name='accountId']") == []


async def test_tabs_keep_the_other_filters(client: ConsoleClient) -> None:
    page = await client.page(PAGE, status="pending", range="24h", eventType="order.*")
    tabs = {each.text: each.get("href") for each in page.all(".//main//nav//a")}
    assert tabs["Skipped"] == f"{PAGE}?status=skipped&range=24h&eventType=order.%2A"
    assert tabs["Last hour"] == f"{PAGE}?status=pending&range=1h&eventType=order.%2A"
    assert "No pending deliveries" in page.main


@pytest.mark.parametrize(
    ("name", "value"),
    [("status", "succeeded"), ("status", "x"), ("eventType", "a b"), ("accountId", "acc_other")],
)
async def test_an_invalid_filter_is_shown_with_its_errors(
    developers_client: ConsoleClient, name: str, value: str
) -> None:
    answer = await developers_client.get(PAGE, **{name: value})
    assert answer.status_code in (400, 403)
    assert name in HtmlPage(answer.text).main


async def test_an_unknown_range_is_refused(client: ConsoleClient) -> None:
    assert (await client.get(PAGE, range="2h")).status_code == 400


async def test_failures_that_the_log_should_have_are_not_hidden_without_a_log(
    developers_client: ConsoleClient, webhook: Webhook, store: Store
) -> None:
    tally = DeliveryTally(now_ms() // HOUR_MS * HOUR_MS, failed=1)
    store.add_tallies([CountedTally(webhook.id, Span.EVENT, tally)], origin="local")
    assert (await developers_client.get(PAGE)).status_code == 503


async def test_a_resend_needs_the_right_key_and_a_selection(
    developers_client: ConsoleClient, readers_client: ConsoleClient
) -> None:
    assert (await readers_client.post(f"{PAGE}/resend", {"id": FAILED.id})).status_code == 403
    back = "status=failed&range=24h&did=x&other=1"
    none = await developers_client.post(f"{PAGE}/resend", {"back": back})
    assert none.headers["location"] == f"{PAGE}?status=failed&range=24h&did=no-deliveries"


async def test_rows_have_the_webhook_first_and_only_enabled_ones_a_checkbox(
    templates: Environment, webhook: Webhook
) -> None:
    deliveries = [replace(FAILED, place=FAILED.place._replace(offset=n)) for n in range(50)]
    webhooks = {each.id: webhook for each in deliveries}
    webhooks[deliveries[1].id] = replace(webhook, status=WebhookStatus.DISABLED)
    module = templates.get_template("_delivery_parts.html").module
    suffix = "?failures=status%3Dfailed"
    table = module.table(  # type: ignore[attr-defined]
        deliveries, version_of, frozenset(), True, webhooks, suffix, True
    )
    assert len(table) < 60_000
    page = HtmlPage(f"<html><main>{table}</main></html>")
    webhook_cell, event_cell = page.texts(".//tbody/tr[1]/*")[1:3]
    assert webhook_cell == f"billing {webhook.id}"
    assert event_cell == "evt_7 order.paid 1970-01-01 00:00:01"
    assert len(page.all(".//tbody//input")) == len(deliveries) - 1
    link = page.all(".//tbody//a")[0]
    assert link.get("href") == f"/console/deliveries/{deliveries[0].id}{suffix}"
