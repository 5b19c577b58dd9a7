"""The page of a webhook."""

from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.console import webhook as webhook_pages
from app.console.formats import format_field_time
from app.domain.endpoint_options import (
    BasicAuthentication,
    BearerAuthentication,
    ClientCredentials,
    EndpointOptions,
)
from app.domain.grants import Grant
from app.domain.hours import HOUR_MS
from app.domain.live_backlog import LiveBacklog
from app.domain.model import NewReplay, NewWebhook, OffsetRange, Replay, Webhook, Window
from app.domain.options import ReplayReason
from app.domain.rules import Rule
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.domain.windows import format_time
from app.services.services import now_ms
from app.store import Store
from app.webhooks.signing import new_secret
from tests.support.http.console_clients import ConsoleClient

pytestmark = pytest.mark.anyio

MISSED_ROWS = ".//div[@aria-label='Missed events by hour']//tbody/tr"

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"


def page_of(webhook: Webhook) -> str:
    return f"/console/webhooks/{webhook.id}"


def hour_ms(hours_ago: int) -> int:
    """Return the start of an hour before the current one."""
    return (now_ms() // HOUR_MS - hours_ago) * HOUR_MS


def missed(webhook: Webhook, start_ms: int, **counts: Any) -> CountedTally:
    """Return missed events of the first minute of an hour."""
    tally = DeliveryTally(
        start_ms, **counts, missed_until_ms=start_ms + 60_000, missed_at_ms=start_ms + 60_000
    )
    return CountedTally(webhook.id, Span.EVENT, tally)


def replayed(store: Store, webhook: Webhook, start_ms: int) -> Replay:
    """Return a completed replay of an hour."""
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(start_ms, start_ms + HOUR_MS)))
    claim = store.claim("one", 60)
    assert claim is not None
    assert claim.replay.id == replay.id
    assert store.begin_delivery(claim.lease, OffsetRange(0, 5, 5))
    assert store.complete(claim.lease)
    return replay


def _replace(new: EndpointOptions, _: EndpointOptions) -> EndpointOptions:
    return new


async def test_the_page_shows_options_without_secrets(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    for authentication, words in (
        (BasicAuthentication("me", "s3cr3t"), "basic, user me"),
        (BearerAuthentication("s3cr3t"), "bearer token"),
        (
            ClientCredentials("https://a.example/", "rewind", "s3cr3t"),
            "OAuth 2.0, client rewind at https://a.example/",
        ),
        (None, "none"),
    ):
        options = EndpointOptions({"x-key": "s3cr3t"}, authentication, 5, 50, 2, (5, 60))
        store.update_webhook(webhook.id, change_options=partial(_replace, options))
        page = await developers_client.page(page_of(webhook))
        names, values = page.texts(".//dl[1]/dt"), page.texts(".//dl[1]/dd")
        facts = dict(zip(names, values, strict=True))
        assert facts["Authentication"] == words
        assert facts["Headers"] == "x-key"
        assert (facts["Timeout"], facts["Live limits"]) == ("5 s", "50 events/s, 2 in flight")
        assert facts["Retry schedule"] == "5, 60 s"
        assert "s3cr3t" not in page.markup


async def test_the_page_shows_the_details_of_a_webhook(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    store.rotate_secret(webhook.id, new_secret(), HOUR_MS)
    changed = store.webhook(webhook.id)
    page = await developers_client.page(page_of(webhook))
    assert page.texts(".//h1") == ["billing ENABLED"]
    assert page.texts(".//title") == ["billing · Rewind"]
    assert "Healthy: the receiver accepts live deliveries." in page.main
    names, values = page.texts(".//dl[1]/dt"), page.texts(".//dl[1]/dd")
    facts = dict(zip(names, values, strict=True))
    assert facts["URL"] == "https://example.com/hooks"
    assert facts["Account"] == webhook.account_id
    assert facts["Verification"] == "ping"
    assert changed.validated_ms is not None
    assert changed.previous_secret_until_ms is not None
    until = format_time(changed.previous_secret_until_ms)[:19].replace("T", " ")
    assert facts["Secret"] == f"previous secret valid until {until}"
    assert facts["Active job"] == "none"
    assert "No live deliveries in the last hour." in page.main
    assert "No missed events." in page.main
    for secret in (webhook.secret, changed.secret):
        assert secret not in page.markup


async def test_a_webhook_with_events_in_retry_is_failing_or_recovering(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    backlog = LiveBacklog(1_200, 40, False, 503, "HTTP 503 <b>down</b>", 1_000, 3_000)
    for is_recovering, badge in ((False, "FAILING"), (True, "RECOVERING")):
        shown = replace(backlog, is_recovering=is_recovering)
        store.record_live_backlogs({webhook.id: shown}, origin="here")
        page = await client.page(f"/console/webhooks/{webhook.id}")
        assert page.texts(".//h1/span[@class='state state-" + badge + "']") == [badge]
        assert "1 200 events wait for live delivery, 40 of them for a retry." in page.main
        assert "Last error: HTTP 503 <b>down</b>." in page.main
        listed = await client.page("/console/webhooks")
        assert f"{badge} 40 in retry" in listed.main


async def test_the_page_shows_the_reason_of_the_status_and_the_start_of_failures(
    client: ConsoleClient, store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    store.disable_webhook(webhook.id, "410 Gone: it wants no more events")
    assert "410 Gone: it wants no more events" in (await client.page(page_of(webhook))).main
    since_ms = hour_ms(3)
    store.record_failing_since(others_webhook.id, since_ms)
    page = await client.page(page_of(others_webhook))
    facts = dict(zip(page.texts(".//dl[1]/dt"), page.texts(".//dl[1]/dd"), strict=True))
    assert facts["Health"].startswith("failing since ")
    assert f"Failing since {format_time(since_ms)[:19].replace('T', ' ')}" in page.main


async def test_the_last_hour_has_numbers_a_plot_and_a_table(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    width_ms = Span.SETTLED.width_ms
    now = now_ms() // width_ms * width_ms
    quick, slow = (3, 0, 0, 0, 0, 0, 0, 0), (0, 0, 0, 0, 0, 0, 0, 2)
    store.add_tallies(
        [
            CountedTally(webhook.id, Span.SETTLED, DeliveryTally(now, delivered=3, took=quick)),
            CountedTally(
                webhook.id,
                Span.SETTLED,
                DeliveryTally(now - 6 * width_ms, failed=2, disabled=1, took=slow),
            ),
        ],
        origin="here",
    )
    page = await client.page(page_of(webhook))
    longest = "> 5\N{NARROW NO-BREAK SPACE}000 ms"
    numbers = [cell.text for cell in page.all(".//section[@aria-labelledby='range']/dl//dd")]
    assert numbers == ["60 %", "≤ 50 ms", longest, "3", "3"]
    (words,) = page.texts(".//desc[@id='deliveries-words']")
    assert words.startswith("3 events delivered and 3 missed, per 5 minutes from ")
    rows = page.all(".//div[@aria-label='Last hour as table']//tbody/tr")
    assert [[cell.text for cell in row.findall("td")] for row in rows] == [
        ["3", "0", "0", "0", "≤ 50 ms", "≤ 50 ms"],
        ["0", "2", "0", "1", longest, longest],
    ]
    bars = page.all(".//section[@aria-labelledby='range']//svg//rect")
    assert [bar.get("class") for bar in bars] == ["bar-bad", "bar-good", "hover", "hover"]


async def test_longer_ranges_show_hours_of_event_time(
    developers_client: ConsoleClient, store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    tallies = [missed(webhook, hour_ms(3), failed=4), missed(webhook, hour_ms(40), failed=5)]
    store.add_tallies([*tallies, missed(others_webhook, hour_ms(3), failed=6)], origin="here")
    for name, expected in (("24h", "4"), ("5d", "9")):
        page = await developers_client.page(page_of(webhook), range=name)
        assert page.texts(".//section[@aria-labelledby='range']/dl//dd")[-1] == expected
        assert "No latencies: nothing was sent." in page.main
    tabs = page.all(".//nav[@aria-label='Time range']//a")
    assert [each.get("href") for each in tabs] == [
        f"{page_of(webhook)}?range={name}#range" for name in ("1h", "24h", "5d")
    ]
    assert (await developers_client.get(page_of(webhook), range="x")).status_code == 400
    assert (await developers_client.get(page_of(others_webhook), range="5d")).status_code == 404


async def test_a_recovering_webhook_links_the_replay_of_its_outage(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    new = NewReplay(webhook.id, Window(0, 60_000), reason=ReplayReason.RECOVERY)
    replay, _ = store.create_replay(new)
    page = await developers_client.page(page_of(webhook))
    assert page.texts(".//h1") == ["billing RECOVERING"]
    assert (
        f"Recovering: the receiver accepts events again. {replay.id} sends the events of the "
        "outage, from 1970-01-01 00:00:00 to 1970-01-01 00:01:00."
    ) in page.main


async def test_missed_hours_have_links_to_replays_of_them(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    first, second, third = hour_ms(30), hour_ms(20), hour_ms(10)
    store.add_tallies(
        [
            missed(webhook, first, failed=4),
            missed(webhook, second, skipped=5),
            missed(webhook, third, disabled=600, failed=30, skipped=1),
        ],
        origin="here",
    )
    replayed(store, webhook, second)

    page = await developers_client.page(page_of(webhook))
    rows = page.all(MISSED_ROWS)
    cells = [[cell.text or "" for cell in row.findall("td")[:4]] for row in rows]
    assert cells == [["631", "30", "1", "600"], ["5", "0", "5", "0"], ["4", "4", "0", "0"]]
    since = page.texts(f"{MISSED_ROWS}/td[5]")
    assert since == ["not replayed", "replayed", "not replayed"]
    assert "640 events were not delivered live; 635 not replayed yet." in page.main

    links = [link.get("href", "") for link in page.all(f"{MISSED_ROWS}//a")]
    windows = [(third, third + HOUR_MS), (first, first + HOUR_MS)]
    whole = page.one(".//section[@aria-labelledby='missed']//a[@class='button primary']")
    assert "".join(whole.itertext()) == "Replay 635 events"
    for href, (from_ms, to_ms) in zip(
        [*links, whole.get("href", "")], [*windows, (first, third + HOUR_MS)], strict=True
    ):
        assert urlsplit(href).path == "/console/replays/new"
        assert parse_qs(urlsplit(href).query) == {
            "webhookId": [webhook.id],
            "from": [format_time(from_ms)],
            "to": [format_time(to_ms)],
            "only": ["failed"],
        }
    assert "5 events would be sent again" in page.main
    form = page.one(".//form[@aria-label='Window to replay']")
    assert (form.get("method"), form.get("action")) == (None, "/console/replays/new")
    fields = page.fields(".//form[@aria-label='Window to replay']")
    assert fields == {
        "webhookId": webhook.id,
        "only": "failed",
        "from": format_field_time(first),
        "to": format_field_time(third + HOUR_MS),
    }
    hours = (int(form.get("data-end", "")) - int(form.get("data-start", ""))) / HOUR_MS
    assert hours == 5 * 24 + 1
    (words,) = page.texts(".//desc[@id='missed-plot-words']")
    assert "5 in hours that were replayed since, 635 in hours that were not." in words


async def test_the_current_hour_is_replayed_up_to_the_present(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    start_ms, before_ms = hour_ms(0), now_ms()
    store.add_tallies([missed(webhook, start_ms, failed=1)], origin="here")
    page = await developers_client.page(page_of(webhook))
    (link,) = page.all(f"{MISSED_ROWS}//a")
    query = parse_qs(urlsplit(link.get("href", "")).query)
    # This format sorts chronologically.
    assert format_time(before_ms) <= query["to"][0] <= format_time(now_ms())


async def test_replayed_hours_have_no_links(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    store.add_tallies([missed(webhook, hour_ms(5), failed=2)], origin="here")
    replayed(store, webhook, hour_ms(5))
    page = await developers_client.page(page_of(webhook))
    assert "all have been replayed since" in page.main
    assert not page.all(".//a[@class='button primary']")
    assert not page.all(f"{MISSED_ROWS}//a")
    fields = page.fields(".//form[@aria-label='Window to replay']")
    assert (fields["from"], fields["to"]) == ("", "")


async def test_the_page_shows_what_blocks_a_replay(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    store.add_tallies([missed(webhook, hour_ms(5), failed=2)], origin="here")
    store.disable_webhook(webhook.id, "")
    page = await developers_client.page(page_of(webhook))
    assert "enable it before starting a replay" in page.main
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(0, 1)))
    page = await developers_client.page(page_of(webhook))
    assert f"A webhook can have one active job: {replay.id} is OPEN." in page.main


async def test_rules_are_listed_with_values_as_json(
    developers_client: ConsoleClient,
    store: Store,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert "No rules" in (await developers_client.page(page_of(webhook))).main
    where = (("data.userId", "42"), ("data.count", 42), ("data.name", HOSTILE))
    store.put_rule(Rule(webhook.id, "vip", ("dm.*", "follow.created"), where))
    page = await developers_client.page(page_of(webhook))
    (row,) = page.texts(".//div[@aria-label='Event types by rule']//tbody/tr")
    assert row.startswith('vipdm.*, follow.createddata.userId = "42", data.count = 42')
    assert "<script>alert(1)</script>" in row
    assert not page.all(".//main//script")

    store.put_rule(Rule(webhook.id, "zip", ("*",)))
    monkeypatch.setattr(webhook_pages, "RULES_SHOWN", 1)
    page = await developers_client.page(page_of(webhook))
    assert page.one(f".//main//a[@href='{page_of(webhook)}/rules']").text == "All rules"


async def test_the_page_shows_grants_and_rules_that_none_covers(
    developers_client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    rules = ".//div[@aria-label='Event types by rule']//tbody/tr"
    store.put_rule(Rule(webhook.id, "vip", ("dm.*",)))
    page = await developers_client.page(page_of(webhook))
    assert [row.endswith("no grant") for row in page.texts(rules)] == [True]
    assert "No grants: rules of this account" in page.main
    assert "Ask the platform for a grant" in page.main
    where = (("data.userId", "42"), ("data.name", HOSTILE))
    store.put_grant(Grant(webhook.account_id, "user-42", ("dm.*",), where))
    page = await developers_client.page(page_of(webhook))
    assert [row.endswith("yes") for row in page.texts(rules)] == [True]
    (row,) = page.texts(".//div[@aria-label='Event types by grant']//tbody/tr")
    assert row.startswith('user-42dm.*data.userId = "42", data.name')
    assert not page.all(".//main//script")
    assert "Ask the platform for a grant" not in page.main


async def test_the_latest_jobs_are_listed_with_live_updates(
    developers_client: ConsoleClient,
    store: Store,
    webhook: Webhook,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_pages, "JOBS_SHOWN", 1)
    store.cancel_replay(store.create_replay(NewReplay(webhook.id, Window(0, 1)))[0].id)
    replay, _ = store.create_replay(NewReplay(webhook.id, Window(1, 2)))
    page = await developers_client.page(page_of(webhook))
    (row,) = page.all(".//tr[@data-live-id]")
    assert row.get("data-live-id") == replay.id
    assert page.one(f".//main//a[@href='/console/jobs?webhookId={webhook.id}']") is not None


async def test_external_text_is_escaped(
    client: ConsoleClient, store: Store, webhook: Webhook
) -> None:
    url = f"https://example.com/{HOSTILE.replace(' ', '')}"
    hostile = store.create_webhook(NewWebhook(url, HOSTILE, new_secret(), webhook.account_id))
    store.disable_webhook(hostile.id, HOSTILE)
    page = await client.page(page_of(hostile))
    assert page.main.count("<script>alert(1)</script>") == 3
    for name in ("script", "img"):
        assert not page.all(f".//main//{name}")
