import time
from typing import Any

import pytest
from httpx import AsyncClient

from app.domain.model import Webhook
from app.domain.windows import DAY_MS, MINUTE_MS, format_time
from tests.support.http.api_clients import Issued

pytestmark = pytest.mark.anyio


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def event(**changes: Any) -> dict[str, Any]:
    return {
        "id": "evt_1",
        "type": "follow.created",
        "time": format_time(now_ms()),
        "data": {},
    } | changes


async def test_events_that_the_log_does_not_acknowledge_are_not_accepted(
    client: AsyncClient, webhook: Webhook
) -> None:
    answer = await client.post("/events", json=event(webhookId=webhook.id))
    assert answer.status_code == 503
    assert answer.json()["unavailable"] == ["log"]
    assert "1 of 1 events" in answer.json()["detail"]
    assert "rewind_events_published_total{" not in (await client.get("/metrics")).text


async def test_an_empty_request_needs_no_log(client: AsyncClient) -> None:
    answer = await client.post("/events", json=[])
    assert (answer.status_code, answer.json()) == (202, {"accepted": 0})


async def test_an_unknown_webhook_is_named_by_the_index_of_its_event(
    client: AsyncClient, webhook: Webhook
) -> None:
    events = [event(webhookId=webhook.id), event(webhookId="wh_none"), event()]
    answer = await client.post("/events", json=events)
    assert answer.status_code == 404
    assert answer.json()["field"] == "events[1].webhookId"
    assert answer.json()["value"] == "wh_none"


async def test_an_unknown_account_is_named_by_the_index_of_its_event(
    client: AsyncClient, webhook: Webhook
) -> None:
    account_id = webhook.account_id
    for unknown in ("acc_none", account_id + " ", account_id.upper()):
        events = [event(accountId=account_id), event(accountId=unknown, webhookId=webhook.id)]
        answer = await client.post("/events", json=events)
        assert answer.status_code == 404
        assert answer.json()["field"] == "events[1].accountId"
        assert answer.json()["value"] == unknown


async def test_webhook_and_account_of_an_event_must_fit(
    client: AsyncClient, webhook: Webhook, other_developer: Issued
) -> None:
    other = other_developer[0].account.id
    fits = event(webhookId=webhook.id, accountId=webhook.account_id)
    answer = await client.post("/events", json=[fits, event(webhookId=webhook.id, accountId=other)])
    assert answer.status_code == 400
    problem = answer.json()
    assert (problem["field"], problem["value"]) == ("events[1].accountId", other)
    assert problem["allowed"] == f"{webhook.account_id}, the account of the webhook, or none"
    # It is accepted, and the log is down.
    assert (await client.post("/events", json=[fits])).status_code == 503


async def test_events_for_a_deleted_webhook_are_rejected(
    client: AsyncClient, webhook: Webhook
) -> None:
    await client.delete(f"/webhooks/{webhook.id}")
    answer = await client.post("/events", json=[event(webhookId=webhook.id)])
    assert answer.status_code == 404


@pytest.mark.parametrize("ahead_ms", [6 * MINUTE_MS, -5 * DAY_MS - MINUTE_MS])
async def test_a_time_out_of_range_is_rejected(client: AsyncClient, ahead_ms: int) -> None:
    answer = await client.post("/events", json=event(time=format_time(now_ms() + ahead_ms)))
    assert answer.status_code == 400
    assert answer.json()["field"] == "time"
    assert " to " in answer.json()["allowed"]


async def test_ndjson_is_read_line_by_line(client: AsyncClient) -> None:
    answer = await client.post(
        "/events", content=b"{}\n", headers={"content-type": "application/x-ndjson"}
    )
    assert answer.status_code == 400
    assert answer.json()["field"] == "events[0].id"
