"""The number of deliveries that were settled since a list was loaded."""

import pytest
from fastapi import FastAPI

from app.console.live_pages import OpenPage
from app.console.live_settled import (
    SHOWN_MS_MAX,
    SettledCount,
    count_settled,
    queue_counts,
    read_counts,
)
from app.domain.deliveries import DeliveryPlace, DeliveryStatus
from app.domain.model import ReplayFilter, Webhook
from app.domain.tallies import CountedTally, DeliveryTally, Span
from app.log.deliveries import DeliveryPage, DeliverySummary
from app.services.services import Services
from app.store import Store

pytestmark = pytest.mark.anyio

FROM_MS = 400_000 * 3_600_000


@pytest.fixture
def services(application: FastAPI) -> Services:
    found: Services = application.state.services
    return found


def settle(store: Store, webhook: Webhook, delivered: int) -> None:
    tally = DeliveryTally(FROM_MS, delivered=delivered, failed=1)
    store.add_tallies([CountedTally(webhook.id, Span.SETTLED, tally)], origin="here")


def page_of(account: str | None, webhook: Webhook, version: str) -> OpenPage:
    return OpenPage(account, ReplayFilter(), {f"settled-{webhook.id}": version})


def page_with(*settled_ms: int, next_cursor: str | None = None) -> DeliveryPage:
    """Return a page of deliveries that were settled at these times."""
    items = (
        DeliverySummary(
            DeliveryPlace("here", 0, offset),
            webhook_id="wh_1",
            event_id=f"evt_{offset}",
            event_type="made",
            time_ms=each,
            status=DeliveryStatus.SUCCEEDED,
            settled_ms=each,
        )
        for offset, each in enumerate(settled_ms)
    )
    return DeliveryPage(tuple(items), next_cursor, is_partial=False, from_ms=0)


def test_a_delivery_that_is_in_the_statistics_and_in_the_list_counts_once() -> None:
    present_ms = FROM_MS + 60_000
    counted = SettledCount(FROM_MS, 2, 2)
    just_now = (present_ms, present_ms - 1, present_ms - 2)
    # The first one is in the list alone.
    assert counted.loaded_with(page_with(*just_now), present_ms).loaded == 3
    reaching_back = page_with(*just_now, FROM_MS - 1, next_cursor="more")
    assert counted.loaded_with(reaching_back, present_ms).loaded == 3


def test_a_page_without_all_deliveries_since_the_start_adds_the_latest_ones() -> None:
    present_ms = FROM_MS + 60_000
    counted = SettledCount(FROM_MS, 9, 9)
    page = page_with(present_ms, present_ms - 20_000, next_cursor="more")
    assert counted.loaded_with(page, present_ms).loaded == 10


async def test_open_lists_get_the_number_of_new_deliveries(
    services: Services, store: Store, webhook: Webhook, others_webhook: Webhook
) -> None:
    settle(store, webhook, 4)
    loaded = count_settled(services, webhook.id, FROM_MS + 1)
    assert loaded == SettledCount(FROM_MS, 5, 5)
    version = loaded.loaded_with(page_with(), FROM_MS + 1).version
    operators, owners, others = pages = [
        page_of(account, webhook, version)
        for account in (None, webhook.account_id, others_webhook.account_id)
    ]
    accounts = store.find_webhook_accounts([webhook.id])
    queue_counts(pages, read_counts(services, pages, FROM_MS + 2), accounts)
    assert not any(each.pending for each in pages)
    settle(store, webhook, 2)
    queue_counts(pages, read_counts(services, pages, FROM_MS + 2), accounts)
    assert "3 new deliveries</a>" in operators.drain_updates()
    assert f"/console/webhooks/{webhook.id}/deliveries" in owners.drain_updates()
    assert not others.pending
    # The version has what the list was loaded with, so a page that reconnects keeps its number.
    assert owners.versions == {f"settled-{webhook.id}": f"{FROM_MS}.5.8"}
    queue_counts(pages, read_counts(services, pages, FROM_MS + 2), accounts)
    assert not owners.pending


@pytest.mark.parametrize(
    ("version", "present_ms"),
    [
        ("", FROM_MS),
        ("1.2", FROM_MS),
        ("x.1.1", FROM_MS),
        (f"{FROM_MS + 1}.0.0", FROM_MS + 1),
        (f"{FROM_MS}.0.0", FROM_MS - 1),
        (f"{FROM_MS}.0.0", FROM_MS + SHOWN_MS_MAX + 1),
        ("9" * 50 + ".0.0", FROM_MS),
    ],
)
async def test_invalid_and_old_versions_are_not_looked_up(
    services: Services, store: Store, webhook: Webhook, version: str, present_ms: int
) -> None:
    settle(store, webhook, 4)
    page = page_of(None, webhook, version)
    assert read_counts(services, [page], present_ms) == {}
