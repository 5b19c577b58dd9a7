"""The list of webhooks in the console."""

import pytest

from app.console import webhooks
from app.console.formats import NOTHING
from app.domain.hours import HOUR_MS
from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.services.services import now_ms
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient

pytestmark = pytest.mark.anyio

LIST = "/console/webhooks"
ROWS = ".//main//tbody/tr"
IDS = ".//main//tbody/tr/th/small"
DAY_H = 24

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def missed(webhook: Webhook, events: int, hours_ago: int) -> CountedTally:
    """Return missed events of an hour of event time."""
    start_ms = (now_ms() // HOUR_MS - hours_ago) * HOUR_MS
    tally = DeliveryTally(start_ms, failed=events)
    return CountedTally(webhook.id, Span.EVENT, tally)


def registered(store: Store, issued: Issued, count: int) -> list[Webhook]:
    """Return new webhooks of an account, latest first."""
    made = [
        store.create_webhook(
            NewWebhook("https://example.com/", f"no. {n}", new_secret(), issued[0].account.id)
        )
        for n in range(count)
    ]
    return sorted(made, key=lambda webhook: (webhook.created_ms, webhook.id), reverse=True)


async def test_a_row_shows_the_url_and_delivery_statistics(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    start_ms = now_ms() // Span.SETTLED.width_ms * Span.SETTLED.width_ms
    took = (18, 0, 2, 0, 0, 0, 0, 0)
    settled = DeliveryTally(start_ms, delivered=20, failed=4, skipped=1, disabled=3, took=took)
    earlier = DeliveryTally(start_ms - 2 * HOUR_MS, delivered=500)
    store.add_tallies(
        [
            CountedTally(webhook.id, Span.SETTLED, settled),
            CountedTally(webhook.id, Span.SETTLED, earlier),
            missed(webhook, 7, 2),
            missed(webhook, 1, 4 * DAY_H),
            missed(webhook, 5, 6 * DAY_H),
        ],
        origin="here",
    )
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))

    page = await client.page(LIST)
    (row,) = page.texts(ROWS)
    assert row == (
        f"billing https://example.com/hooks {webhook.id} {webhook.account_id} ENABLED "
        f"80 % 20 of 25 p50 ≤ 50 ms p95 ≤ 250 ms 8 {replay.id} OPEN"
    )
    link = f".//main//a[@href='{LIST}/{webhook.id}"
    assert page.texts(f"{link}']") == ["billing"]
    assert page.texts(f"{link}#missed']") == ["8"]
    assert page.texts(f".//main//a[@href='/console/jobs/{replay.id}']") == [replay.id]


async def test_a_webhook_without_deliveries_has_no_numbers(
    client: ConsoleClient, webhook: Webhook
) -> None:
    (row,) = (await client.page(LIST)).texts(ROWS)
    assert row.endswith(f" ENABLED {NOTHING} {NOTHING} 0 {NOTHING}")


async def test_a_row_shows_the_reason_of_the_status_or_the_start_of_failures(
    client: ConsoleClient, store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    store.disable_webhook(webhook.id, "we move to another place")
    store.record_failing_since(others_webhook.id, now_ms() - 2 * HOUR_MS)
    page = await client.page(LIST)
    rows = dict(zip(page.texts(IDS), page.texts(ROWS), strict=True))
    assert "DISABLED we move to another place" in rows[webhook.id]
    assert "FAILING failing since 2 h ago" in rows[others_webhook.id]


async def test_links_between_pages_keep_the_filter(
    client: ConsoleClient, store: Store, developer: Issued, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "ROWS", 2)
    expected = [webhook.id for webhook in registered(store, developer, 3)]
    account_id = developer[0].account.id
    first = await client.page(LIST, status="PENDING", accountId=account_id)
    older = first.one(".//nav[@aria-label='Pages']/a").get("href", "")
    assert f"accountId={account_id}" in older
    assert "status=PENDING" in older
    second = await client.page(older)
    assert first.texts(IDS) + second.texts(IDS) == expected
    newest = second.one(".//nav[@aria-label='Pages']/a")
    assert newest.get("href") == f"{LIST}?status=PENDING&accountId={account_id}"


async def test_webhooks_are_listed_by_status_and_account(
    client: ConsoleClient, store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    store.disable_webhook(others_webhook.id, "")
    for query, expected in (
        ({"status": "DISABLED"}, others_webhook),
        ({"status": "ENABLED"}, webhook),
        ({"accountId": webhook.account_id}, webhook),
        ({"accountId": others_webhook.account_id, "status": "DISABLED"}, others_webhook),
    ):
        page = await client.page(LIST, **query)
        assert page.texts(IDS) == [expected.id]
        (current,) = page.texts(".//nav[@aria-label='Statuses']//a[@aria-current='page']")
        assert current == query.get("status", "All")
    none = await client.page(LIST, status="PENDING", accountId="acc_none")
    assert "No matching webhooks" in none.main
    assert none.field("accountId") == "acc_none"


@pytest.mark.parametrize("query", [{"status": "enabled"}, {"cursor": "x"}, {"accountId": "a" * 41}])
async def test_an_invalid_filter_is_rejected(client: ConsoleClient, query: dict[str, str]) -> None:
    answer = await client.get(LIST, **query)
    assert answer.status_code == 400
    assert next(iter(query)) in answer.text


async def test_a_developer_sees_the_webhooks_of_the_own_account_only(
    developers_client: ConsoleClient, webhook: Webhook, others_webhook: Webhook
) -> None:
    page = await developers_client.page(LIST)
    assert page.texts(IDS) == [webhook.id]
    assert others_webhook.id not in page.markup
    assert not page.all(".//main//form")
    answer = await developers_client.get(LIST, accountId=others_webhook.account_id)
    assert answer.status_code == 403


async def test_an_empty_list_explains_how_to_register_a_webhook(
    developers_client: ConsoleClient, readers_client: ConsoleClient
) -> None:
    page = await developers_client.page(LIST)
    assert "No webhooks yet" in page.main
    assert "curl -s http://console.test/webhooks" in page.main
    assert len(page.all(f".//main//a[@href='{LIST}/new']")) == 2
    read_only = await readers_client.page(LIST)
    assert "This key is read-only" in read_only.main
    assert not read_only.all(f".//main//a[@href='{LIST}/new']")


async def test_external_text_is_escaped(
    client: ConsoleClient, store: Store, developer: Issued
) -> None:
    url = f"https://example.com/{HOSTILE.replace(' ', '')}"
    webhook = store.create_webhook(NewWebhook(url, HOSTILE, new_secret(), developer[0].account.id))
    store.disable_webhook(webhook.id, HOSTILE)
    page = await client.page(LIST)
    (row,) = page.texts(ROWS)
    assert row.count("<script>alert(1)</script>") == 3
    assert not page.all(".//main//script")
    assert not page.all(".//main//img")
    assert webhook.secret not in page.markup
