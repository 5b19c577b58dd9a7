"""The first page: choose a webhook, or find a delivery by its id."""

from urllib.parse import parse_qs, urlsplit

import pytest

from app.console import webhooks
from app.domain.model import NewWebhook, Webhook
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage

pytestmark = pytest.mark.anyio

PAGE = "/console/deliveries"


async def test_webhooks_have_their_names_first_and_link_to_their_deliveries(
    developers_client: ConsoleClient, webhook: Webhook, others_webhook: Webhook
) -> None:
    page = await developers_client.page(PAGE)
    assert page.texts(".//tbody/tr/th") == [f"billing {webhook.id}"]
    assert page.texts(".//tbody/tr/td") == ["ENABLED", "0", "0"]
    assert page.one(".//tbody//a").get("href") == f"/console/webhooks/{webhook.id}/deliveries"


async def test_a_webhook_without_a_description_is_named_by_its_url(
    developers_client: ConsoleClient, store: Store, developer: Issued
) -> None:
    made = store.create_webhook(
        NewWebhook("https://example.com/a", "", new_secret(), developer[0].account.id)
    )
    (row,) = (await developers_client.page(PAGE)).texts(".//tbody/tr/th")
    assert row == f"https://example.com/a {made.id}"


async def test_an_id_leads_to_its_page(
    client: ConsoleClient, developers_client: ConsoleClient, others_webhook: Webhook
) -> None:
    found = await developers_client.get(PAGE, id=" dlv_/1 ")
    assert (found.status_code, found.headers["location"]) == (303, f"{PAGE}/dlv_%2F1")
    operators = await client.get(PAGE, id=others_webhook.id)
    assert operators.headers["location"] == f"/console/webhooks/{others_webhook.id}/deliveries"
    for event_id, path in (("evt/<b>", "evt%2F%3Cb%3E"), (others_webhook.id, others_webhook.id)):
        event = await developers_client.get(PAGE, id=event_id)
        assert event.headers["location"] == f"/console/events/{path}"
    for wrong in ("x" * 300, "a b"):
        refused = await developers_client.get(PAGE, id=wrong)
        assert refused.status_code == 400
        page = HtmlPage(refused.text)
        assert page.field("id") == wrong
        assert "the id of an event" in page.error_of("id")


async def test_webhooks_are_paged(
    developers_client: ConsoleClient,
    store: Store,
    webhook: Webhook,
    developer: Issued,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhooks, "ROWS", 1)
    new = NewWebhook("https://example.com/b", "latest", new_secret(), developer[0].account.id)
    latest = store.create_webhook(new)
    names, page = [], await developers_client.page(PAGE)
    (older,) = page.all(".//nav[@aria-label='Pages']/a")
    names += page.texts(".//tbody/tr/th")
    page = await developers_client.page(older.get("href", ""))
    names += page.texts(".//tbody/tr/th")
    assert sorted(names) == sorted([f"latest {latest.id}", f"billing {webhook.id}"])
    assert page.one(".//nav[@aria-label='Pages']/a").get("href") == PAGE


async def test_deliveries_are_the_first_entry_and_the_start_page(
    developers_client: ConsoleClient, webhook: Webhook
) -> None:
    assert (await developers_client.get("/console")).headers["location"] == PAGE
    # Rejected before the log is read.
    answer = await developers_client.get(f"/console/webhooks/{webhook.id}/deliveries", status="x")
    entries = HtmlPage(answer.text).all(".//nav[@aria-label='Console']//a")
    assert [each.text for each in entries] == ["Deliveries", "Overview", "Jobs", "Webhooks"]
    assert [each.text for each in entries if each.get("aria-current")] == ["Deliveries"]


async def test_a_sign_in_leads_to_the_event_whatever_its_id(anonymous: ConsoleClient) -> None:
    answer = await anonymous.get("/console/events/a%2Fb%3Fc")
    (next_page,) = parse_qs(urlsplit(answer.headers["location"]).query)["next"]
    assert next_page == "/console/events/a/b%3Fc"
