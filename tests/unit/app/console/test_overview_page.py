"""The overview of live deliveries."""

from dataclasses import replace

import pytest

from app.domain.deliveries import DeliveryPlace
from app.domain.hours import HOUR_MS
from app.domain.live_backlog import LiveBacklog
from app.domain.model import NewReplay, NewWebhook, Webhook, Window
from app.domain.scheduled_retries import NewScheduledRetry
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.services.services import now_ms
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.api_clients import Issued
from tests.support.http.console_clients import ConsoleClient
from tests.support.http.html_page import HtmlPage

pytestmark = pytest.mark.anyio

PAGE = "/console/overview"
RANGE = ".//section[@aria-labelledby='range']"
NOW = ".//section[@aria-labelledby='now']"
MISSED = ".//section[@aria-labelledby='missed']//tbody/tr"

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"

QUICK = (6, 0, 0, 0, 0, 0, 0, 0)
SLOW = (0, 0, 0, 0, 0, 0, 0, 2)


def settled(webhook: Webhook, tally: DeliveryTally) -> CountedTally:
    """Return a tally of the current five minutes."""
    start_ms = now_ms() // Span.SETTLED.width_ms * Span.SETTLED.width_ms
    return CountedTally(webhook.id, Span.SETTLED, replace(tally, start_ms=start_ms))


def hourly(webhook: Webhook, hours_ago: int, tally: DeliveryTally) -> CountedTally:
    """Return a tally of an hour of event time."""
    start_ms = (now_ms() // HOUR_MS - hours_ago) * HOUR_MS
    return CountedTally(webhook.id, Span.EVENT, replace(tally, start_ms=start_ms))


def numbers(page: HtmlPage, section: str) -> dict[str, str]:
    """Return the figures of a section by their labels."""
    return dict(zip(page.texts(f"{section}/dl//dt"), page.texts(f"{section}/dl//dd"), strict=True))


async def test_the_last_hour_of_all_webhooks_is_the_default(
    client: ConsoleClient, store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    delivered = DeliveryTally(0, delivered=6, took=QUICK)
    missed = DeliveryTally(0, failed=2, disabled=1, took=SLOW)
    store.add_tallies(
        [
            settled(webhook, delivered),
            settled(others_webhook, missed),
            hourly(webhook, 3, DeliveryTally(0, delivered=999)),
        ],
        origin="here",
    )
    page = await client.page(PAGE)
    longest = "> 5 000 ms"
    assert numbers(page, RANGE) == {
        "Success rate": "75 %",
        "p50 latency": "≤ 50 ms",
        "p95 latency": longest,
        "Delivered": "6",
        "Missed": "3",
    }
    (words,) = page.texts(".//desc[@id='deliveries-words']")
    assert words.startswith("6 events delivered and 3 missed, per 5 minutes from ")
    (words,) = page.texts(".//desc[@id='latency-words']")
    assert words.endswith(f"In all: p50 ≤ 50 ms, p95 {longest}.")
    cells = page.texts(".//div[@aria-label='Last hour as table']//tbody/tr/td")
    assert cells == ["6", "2", "0", "1", "≤ 50 ms", longest]
    assert page.texts(MISSED) == [
        f"billing {others_webhook.id} {others_webhook.account_id} ENABLED 3 0 0 % {longest}"
    ]


async def test_longer_ranges_show_hours_of_event_time(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    slow = DeliveryTally(0, failed=2, took=SLOW)
    store.add_tallies(
        [
            settled(webhook, DeliveryTally(0, delivered=999)),
            hourly(webhook, 2, DeliveryTally(0, delivered=6, took=QUICK)),
            hourly(webhook, 50, slow),
            hourly(webhook, 130, DeliveryTally(0, failed=999)),
        ],
        origin="here",
    )
    day = await developers_client.page(PAGE, range="24h")
    assert numbers(day, RANGE)["Delivered"] == "6"
    assert "per hour from" in day.texts(".//desc[@id='deliveries-words']")[0]
    assert "No webhook missed events in the last 24 hours." in day.main
    days = await developers_client.page(PAGE, range="5d")
    assert numbers(days, RANGE)["Success rate"] == "75 %"
    assert "per 3 hours from" in days.texts(".//desc[@id='deliveries-words']")[0]
    assert days.texts(MISSED)[0].startswith(f"billing {webhook.id} ENABLED 2 6 75 %")
    assert days.texts(".//nav[@aria-label='Time range']//a[@aria-current]") == ["5 d"]
    refused = await developers_client.get(PAGE, range="2h")
    assert refused.status_code == 400
    assert "1h, 24h, 5d" in HtmlPage(refused.text).main


async def test_the_current_state_counts_webhooks_backlogs_and_jobs(
    client: ConsoleClient, store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    backlog = LiveBacklog(1_200, 40, False, 503, "HTTP 503", 1, 2)
    store.record_live_backlogs({webhook.id: backlog}, origin="here")
    store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    retry = NewScheduledRetry(
        webhook.id, DeliveryPlace("here", 3, 7), "evt", "a.b", 0, 3_600, attempts=4
    )
    store.add_scheduled_retries([retry])
    page = await client.page(PAGE)
    assert numbers(page, NOW) == {
        "Webhooks healthy": "1",
        "Failing": "1",
        "Recovering": "0",
        "Disabled": "0",
        "Pending": "0",
        "Events in live backlogs": "1 200",
        "Events with a scheduled retry": "1",
        "Active jobs": "1",
    }
    assert "No live deliveries in the last hour." in page.main
    link = page.one(f"{NOW}//a").get("href", "")
    assert (await client.page(link)).texts(".//main//tbody/tr/th/a[1]") != []


async def test_developers_see_their_own_account_and_operators_choose_one(
    client: ConsoleClient,
    developers_client: ConsoleClient,
    others_client: ConsoleClient,
    store: Store,
    webhook: Webhook,
    others_webhook: Webhook,
) -> None:
    store.add_tallies(
        [
            settled(webhook, DeliveryTally(0, failed=7)),
            settled(others_webhook, DeliveryTally(0, failed=5)),
        ],
        origin="here",
    )
    for page, shown, hidden, missed in (
        (await developers_client.page(PAGE), webhook, others_webhook, "7"),
        (await others_client.page(PAGE), others_webhook, webhook, "5"),
        (await client.page(PAGE, accountId=webhook.account_id), webhook, others_webhook, "7"),
    ):
        assert numbers(page, RANGE)["Missed"] == missed
        assert numbers(page, NOW)["Webhooks healthy"] == "1"
        assert shown.id in page.main
        assert hidden.id not in page.markup
        assert hidden.account_id not in page.markup
    refused = await developers_client.get(PAGE, accountId=others_webhook.account_id)
    assert refused.status_code == 403
    both = await client.page(PAGE)
    assert [row.split()[1] for row in both.texts(MISSED)] == [webhook.id, others_webhook.id]
    account = both.one(f".//a[@aria-label='Overview of account {webhook.account_id}']")
    assert numbers(await client.page(account.get("href", "")), RANGE)["Missed"] == "7"


async def test_foreign_text_is_escaped_and_the_page_is_small(
    client: ConsoleClient, store: Store, developer: Issued
) -> None:
    new = NewWebhook("https://example.com/", HOSTILE, new_secret(), developer[0].account.id)
    for _ in range(12):
        webhook = store.create_webhook(new)
        tally = DeliveryTally(0, 10**9, 10**9, 10**9, 10**9, (10**9,) * 8)
        store.add_tallies([hourly(webhook, ago, tally) for ago in range(121)], origin="here")
    page = await client.page(PAGE, range="5d")
    assert len(page.all(MISSED)) == 10
    assert HOSTILE in page.main
    assert not page.all(".//main//img") + page.all(".//main//script")
    assert len(page.markup.encode()) < 60_000
